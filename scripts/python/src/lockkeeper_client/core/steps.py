"""The steps that operations yield. A driver performs each, and sends back its result or throws its error."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from .clock import SECOND
from .endpoints import Endpoint
from .http import Head

Result = TypeVar("Result")

IDLE_MAX = 15 * SECOND
"""A driver closes a connection that is idle for longer. A node does so after 30 s."""
CONNECT_TIME_MAX = 2 * SECOND
LOOKUP_AGE_MAX = 60 * SECOND
"""Addresses whose lookup began earlier are not used: the host may have others now."""
IDLE_CONNECTIONS_MAX = 4
"""Idle connections to one node that a driver keeps."""
READ_BYTES = 64 * 1024

Addresses: TypeAlias = list[tuple[Any, ...]]
"""The addresses of a host, as `socket.getaddrinfo` returns them."""
Stop: TypeAlias = Callable[[], BaseException | None]
"""Returns an exception if the operation must end although the step is not done. Drivers call it once a second."""


def never() -> BaseException | None:
    """Lets a step continue until it is done."""
    return None


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send a request and read the whole answer within `timeout` ns. The result is a pair of head and body."""

    endpoint: Endpoint
    request: bytes
    timeout: int
    stop: Stop = never


@dataclass(frozen=True, slots=True)
class Listen:
    """Send a request and read the head of its answer within `timeout` ns. `Next` then reads the body in parts."""

    endpoint: Endpoint
    request: bytes
    timeout: int
    stop: Stop = never


@dataclass(frozen=True, slots=True)
class Next:
    """Read more of the body of the last `Listen` within `timeout` ns. The result is empty at its end."""

    timeout: int
    stop: Stop = never


@dataclass(frozen=True, slots=True)
class Pause:
    """Sleep for `duration` ns. A driver whose operation can be woken ends the pause early."""

    duration: int
    stop: Stop = never


Step: TypeAlias = Exchange | Listen | Next | Pause
Steps: TypeAlias = Generator[Step, Any, Result]


class NotSent(Exception):
    """The request did not reach the node."""


class NotAnswered(Exception):
    """The request may have reached the node, and there is no answer."""


def exchange(step: Exchange) -> Steps[tuple[Head, bytes]]:
    """Sends a request and returns the head and the body of its answer."""
    head, body = yield step
    return head, body


def listen(step: Listen) -> Steps[Head]:
    """Sends a request and returns the head of its answer."""
    head: Head = yield step
    return head


def next_part(step: Next) -> Steps[bytes]:
    """Returns the next part of the answer of `listen`, empty at its end."""
    part: bytes = yield step
    return part
