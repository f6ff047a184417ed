"""The addresses of the nodes."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import InvalidArgument

LOOPBACK = ("http://127.0.0.1:7621", "http://127.0.0.1:7622", "http://127.0.0.1:7623")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The HTTP port of a node."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """Host and port, as a URL and the header `Host` contain them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"http{'s' if self.tls else ''}://{self.authority}"


def endpoint(url: str) -> Endpoint:
    """Reads an address such as `http://127.0.0.1:7621`; the scheme may be left out.

    The host is written as DNS and the header `Host` know it: in ASCII, with no empty or too long label.
    """
    text = url.strip()
    refused = InvalidArgument(f"endpoints: http://HOST:PORT or https://HOST:PORT, got {url!r}")
    try:
        parts = urlsplit(text if "//" in text else f"http://{text}")
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
    except ValueError as error:
        raise refused from error
    plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not (host and host.isprintable()) or port is None or not plain:
        raise refused
    return Endpoint(host, port, parts.scheme == "https")


class Endpoints:
    """The nodes of a cluster. One is asked until it fails; then the next one is."""

    def __init__(self, urls: Iterable[str]) -> None:
        self.all = [endpoint(url) for url in urls]
        if not self.all:
            raise InvalidArgument("endpoints: at least one, got none")
        self._at = secrets.randbelow(len(self.all))

    @property
    def current(self) -> Endpoint:
        """The node to ask."""
        return self.all[self._at]

    def failed(self, endpoint: Endpoint) -> None:
        """Chooses the next node, unless another operation has done so since this node was asked."""
        if endpoint == self.current:
            self._at = (self._at + 1) % len(self.all)
