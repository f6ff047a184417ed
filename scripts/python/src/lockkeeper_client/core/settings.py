"""The options of clients and locks."""

import os
import ssl
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias, TypedDict, Unpack

from .claim import LockRequest, Reentry
from .clock import boot_clock
from .endpoints import LOOPBACK, Endpoints
from .errors import InvalidArgument
from .link import Link, given, milliseconds, nanoseconds
from .metadata import own_metadata
from .token import token_of

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""


class LockOptions(TypedDict, total=False):
    """Options that few locks need."""

    shared: bool
    """Holders that share do not exclude each other."""
    owner: str
    """The line of execution, for reentry and for the detection of deadlocks."""
    parent: tuple[str, str]
    """The session id and the owner of the line of execution that waits until this one has finished."""
    reentry: Reentry
    """What happens if the owner holds the lock already: it is refused, counted, or waits."""
    unfair: bool
    """May overtake other unfair requests in the queue."""
    delay: Duration
    """How long the lock stays closed after its holder was lost."""
    at_least: Duration
    """Minimum time between two grants."""
    at_most: Duration
    """The hold ends this long after its grant."""
    cached: bool
    """The session keeps the hold between uses, until another request waits for the lock."""
    why: str
    """The purpose, which all clients see."""


class Settings:
    """The options that a client and its sessions share."""

    def __init__(
        self,
        endpoints: str | Iterable[str] | None,
        namespace: str | None,
        *,
        token: str | None,
        token_file: str | os.PathLike[str] | None,
        tls: ssl.SSLContext | None,
        who: str | None,
        request_timeout: Duration,
    ) -> None:
        chosen = os.environ.get("LOCKKEEPER_HTTP") if endpoints is None else endpoints
        urls = chosen.split(",") if isinstance(chosen, str) and chosen else chosen
        name = namespace if namespace is not None else os.environ.get("LOCKKEEPER_NAMESPACE") or "default"
        patience = to_ns("request_timeout", request_timeout)
        nodes = Endpoints(LOOPBACK if urls is None or urls == "" else urls)
        self.link = Link(nodes, name, token_of(token, token_file, nodes), boot_clock, patience)
        self.tls = tls
        self.metadata = own_metadata(who)


def to_ns(name: str, value: Duration) -> int:
    """Converts a duration to ns. Raises InvalidArgument below 0, above 10 years, and for another type."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        within = 0 <= seconds <= 10 * 365 * 86_400
    except TypeError:
        within = False
    if not within:
        raise InvalidArgument(f"{name}: seconds from 0 to 10 years, got {value!r}")
    return nanoseconds(seconds)


def maybe_ns(name: str, value: Duration | None) -> int | None:
    """Converts a duration to ns, if there is one."""
    return None if value is None else to_ns(name, value)


def maybe_ms(name: str, value: Duration | None) -> int | None:
    """Converts a duration to ms, if there is one."""
    return None if value is None else milliseconds(to_ns(name, value))


def lock_request(names: tuple[str, ...], wait: Duration | None, **options: Unpack[LockOptions]) -> LockRequest:
    """Makes the request of a lock or a set. Raises InvalidArgument for an option that does not exist."""
    for name in options:
        if name not in LockOptions.__optional_keys__:
            known = ", ".join(sorted(LockOptions.__optional_keys__))
            raise InvalidArgument(f"{name}: no option here, which are wait, {known}")
    owner, reentry, parent = options.get("owner"), options.get("reentry"), options.get("parent")
    if reentry is not None and owner is None:
        raise InvalidArgument(f"owner: needed for reentry={reentry!r}, got none")
    fields = given(
        mode="shared" if options.get("shared") else None,
        owner=owner,
        parent=None if parent is None else {"session": parent[0], "owner": parent[1]},
        reentry=reentry,
        unfair=options.get("unfair"),
        delay_ms=maybe_ms("delay", options.get("delay")),
        at_least_ms=maybe_ms("at_least", options.get("at_least")),
        at_most_ms=maybe_ms("at_most", options.get("at_most")),
        cached=options.get("cached"),
    )
    return LockRequest(names, maybe_ns("wait", wait), fields, options.get("why"))


def permits_request(request: LockRequest, permits: int, limit: int | None) -> LockRequest:
    """Turns the request of a lock into one of permits."""
    return replace(request, fields={**request.fields, **given(mode="permits", permits=permits, limit=limit)})


def election_request(request: LockRequest, value: str | None) -> LockRequest:
    """Stores a value with the hold of a request."""
    return replace(request, fields={**request.fields, **given(value=value)})
