"""The bearer token that proves a client to nodes that know their callers."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from .endpoints import Endpoint, Endpoints
from .errors import InvalidArgument, Unavailable

_TOKEN = re.compile("lkt_[0-9A-Za-z]{49}")
_READ_BY_ALL = 0o004


@dataclass(frozen=True, slots=True)
class Token:
    """The source of the token to show. `show` raises Unavailable if its file cannot be used now."""

    show: Callable[[], str] = field(repr=False)
    in_file: bool
    """Whether another token may replace it while the client runs."""


def token_of(text: str | None, file: str | os.PathLike[str] | None, endpoints: Endpoints) -> Token | None:
    """Returns the source of the token: a text, a file, or else the file that the environment names.

    A file is read for each request, so that the next request shows a token that has replaced another one.
    """
    if text is not None and file is not None:
        raise InvalidArgument("token: a text or `token_file`, got both")
    if text is not None:
        if _TOKEN.fullmatch(text) is None:
            raise InvalidArgument("token: `lkt_` and 49 letters and digits, as `lockkeeper auth token` makes it")
        source = Token(partial(str, text), in_file=False)
    elif path := file or os.environ.get("LOCKKEEPER_AUTH_TOKEN_FILE"):
        source = Token(partial(_read, Path(path)), in_file=True)
        try:
            source.show()
        except Unavailable as error:
            raise InvalidArgument(f"token_file: {error.detail}") from error
    else:
        return None
    for endpoint in endpoints.all:
        if not (endpoint.tls or _stays_here(endpoint)):
            raise InvalidArgument(f"endpoints: a token is sent with https or to this machine only, got {endpoint}")
    return source


def _read(path: Path) -> str:
    try:
        mode, token = path.stat().st_mode, path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check the path") from error
    if os.name == "posix" and mode & _READ_BY_ALL:
        raise Unavailable(f"{path} can be read by every user (mode {mode & 0o777:04o}); run chmod 600 {path}")
    if _TOKEN.fullmatch(token) is None:
        raise Unavailable(f"{path} has no token; make one with `lockkeeper auth token`")
    return token


def _stays_here(endpoint: Endpoint) -> bool:
    """Whether only this machine can read plain text on the way."""
    try:
        address = ip_address(endpoint.host)
    except ValueError:
        return endpoint.host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
