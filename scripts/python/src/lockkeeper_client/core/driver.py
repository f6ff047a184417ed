"""Performs steps with single reads and writes, which `_threads` makes with sockets and `_tasks` with asyncio."""

import ssl
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from .clock import LONGEST_SLEEP, SECOND, Clock
from .endpoints import Endpoint
from .http import AnswerParser, Head, Malformed
from .steps import (
    IDLE_CONNECTIONS_MAX,
    IDLE_MAX,
    LOOKUP_AGE_MAX,
    Addresses,
    Exchange,
    Listen,
    Next,
    NotAnswered,
    NotSent,
    Step,
    Steps,
)

Result = TypeVar("Result")

Action: TypeAlias = Callable[[], Any]
"""Makes one read, write or sleep. With asyncio its result is awaited."""
Actions: TypeAlias = Generator[Action, Any, Result]


class BaseConnection(ABC):
    """A connection to one node, for one request at a time."""

    def __init__(self) -> None:
        self.parser = AnswerParser()
        self.idle_since = 0

    @abstractmethod
    def send(self, data: bytes, timeout: int) -> Any:
        """Sends a request. Raises NotAnswered."""

    @abstractmethod
    def receive(self, timeout: int) -> Any:
        """Returns bytes, none at the end, or None if nothing arrives within `timeout` ns. Raises NotAnswered."""

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Whether an idle connection can send another request: the node has not closed it."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection at once."""

    @abstractmethod
    def abandon(self) -> None:
        """Drops the socket without a byte sent, because the parent of a fork uses the connection."""


C = TypeVar("C", bound=BaseConnection)
F = TypeVar("F")


def disconnect(stream: list[C]) -> None:
    """Closes the connection to which operations with this `stream` listen."""
    while stream:
        stream.pop().close()


class Driver(ABC, Generic[C]):
    """Turns the steps of operations into actions. Keeps idle connections."""

    def __init__(self, clock: Clock, tls: ssl.SSLContext | None) -> None:
        self._clock = clock
        self._tls = tls
        # A handler of signals may interrupt the thread that has the lock.
        self._lock = threading.RLock()
        self._idle: dict[Endpoint, list[C]] = {}
        self._open: weakref.WeakSet[C] = weakref.WeakSet()
        self._closed = False
        self._lookups: dict[Endpoint, tuple[int, Any]] = {}
        """The lookups that run, or that left their attempts too little time, and when each began."""

    @abstractmethod
    def connect(self, endpoint: Endpoint, timeout: int) -> Any:
        """Opens a connection. Raises NotSent."""

    def close_idle(self) -> None:
        """Closes the idle connections, and keeps no others from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            disconnect(connections)

    def forked(self) -> None:
        """Drops the parent's connections in the child of a fork, without a byte sent."""
        self._lock = threading.RLock()
        for connection in self._open:
            # It may have been closed before the fork.
            with suppress(OSError):
                connection.abandon()
        self._open = weakref.WeakSet()
        self._idle = {}
        self._lookups = {}

    def opened(self, connection: C) -> C:
        """Returns a connection that is to be dropped in the child of a fork."""
        with self._lock:
            self._open.add(connection)
        return connection

    def _lookup(self, endpoint: Endpoint, begin: Callable[[], F]) -> F:
        """Returns the future of the addresses of a host. It may have begun during an earlier attempt."""
        with self._lock:
            now = self._clock()
            began, lookup = self._lookups.get(endpoint, (now, None))
            old = LOOKUP_AGE_MAX < now - began
            if lookup is None or (lookup.done() and (old or lookup.cancelled() or lookup.exception() is not None)):
                lookup = begin()
                self._lookups[endpoint] = now, lookup
            found: F = lookup
            return found

    def _found(self, endpoint: Endpoint, lookup: Any, end: int, longest: int) -> Addresses:
        """Returns the addresses that a lookup has found before the `end` of an attempt that may take `longest` ns."""
        left = end - self._clock()
        if left <= 0 or not lookup.done() or lookup.cancelled():
            raise NotSent("the name is not resolved in time")
        with self._lock:
            # The addresses of a slow lookup stay for the next attempt, which has all its time for them. Others may be
            # of no use, so the next attempt looks up the name again.
            if longest // 2 <= left and self._lookups.get(endpoint, (0, None))[1] is lookup:
                del self._lookups[endpoint]
        addresses: Addresses = lookup.result()
        return addresses

    def _share(self, end: int, parts: int) -> float:
        """Returns one of equal `parts` of the time until `end`, in seconds."""
        return max(1, (end - self._clock()) // parts) / SECOND

    def actions(self, steps: Steps[Result], stream: list[C] | None, pause: Callable[[int], Any]) -> Actions[Result]:
        """Performs the steps of an operation, and returns its result.

        The next operation with the same `stream` continues to read what this one listens to. `pause` sleeps.
        """
        listening: list[C] = [] if stream is None else stream
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                step = steps.throw(error) if error is not None else steps.send(value)
                value, error = None, None
                try:
                    value = yield from self._perform(step, listening, pause)
                except BaseException as failed:  # The operation decides.
                    error = failed
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            if stream is None:
                disconnect(listening)

    def _perform(self, step: Step, stream: list[C], pause: Callable[[int], Any]) -> Actions[Any]:
        if isinstance(step, Exchange):
            return (yield from self._exchange(step))
        if isinstance(step, Listen):
            return (yield from self._listen(step, stream))
        if isinstance(step, Next):
            return (yield from self._next(step, stream[-1]))
        if (error := step.stop()) is not None:
            raise error
        yield partial(pause, min(step.duration, LONGEST_SLEEP))
        return None

    def _exchange(self, step: Exchange) -> Actions[tuple[Head, bytes]]:
        end = self._clock() + step.timeout
        idle = self._take(step.endpoint)
        connection = idle if idle is not None else (yield from self._connect(step, end))
        kept = False
        try:
            parser = yield from self._send(connection, step, end)
            yield from self._read_until(lambda: parser.finished, connection, step, end)
            assert parser.head is not None
            kept = parser.reusable and self._keep(step.endpoint, connection)
            return parser.head, parser.take()
        finally:
            if not kept:
                connection.close()

    def _listen(self, step: Listen, stream: list[C]) -> Actions[Head]:
        end = self._clock() + step.timeout
        disconnect(stream)
        connection = yield from self._connect(step, end)
        stream.append(connection)
        parser = yield from self._send(connection, step, end)
        yield from self._read_until(lambda: parser.head is not None, connection, step, end)
        assert parser.head is not None
        return parser.head

    def _connect(self, step: Exchange | Listen, end: int) -> Actions[C]:
        connection: C = yield partial(self.connect, step.endpoint, step.timeout)
        if end <= self._clock():
            # Connecting was slow, and the node may be well: the next attempt finds the connection.
            if not self._keep(step.endpoint, connection):
                connection.close()
            raise NotSent("no connection in time")
        return connection

    def _next(self, step: Next, connection: C) -> Actions[bytes]:
        parser, parts = connection.parser, [connection.parser.take()]

        def done() -> bool:
            parts[0] = parts[0] or parser.take()
            return bool(parts[0]) or parser.finished

        yield from self._read_until(done, connection, step, self._clock() + step.timeout)
        return parts[0]

    def _send(self, connection: C, step: Exchange | Listen, end: int) -> Actions[AnswerParser]:
        connection.parser = AnswerParser()
        yield partial(connection.send, step.request, max(1, end - self._clock()))
        return connection.parser

    def _read_until(
        self, done: Callable[[], bool], connection: C, step: Exchange | Listen | Next, end: int
    ) -> Actions[None]:
        """Feeds the parser until `done`. Reads the clock, and asks `stop`, at least once a second."""
        while not done():
            if (error := step.stop()) is not None:
                raise error
            left = end - self._clock()
            if left <= 0:
                raise NotAnswered(f"no answer within {step.timeout / SECOND:.1f} s")
            data: bytes | None = yield partial(connection.receive, min(left, LONGEST_SLEEP))
            if data is None:
                continue
            try:
                connection.parser.feed(data) if data else connection.parser.eof()
            except Malformed as error:
                raise NotAnswered(str(error)) from error

    def _take(self, endpoint: Endpoint) -> C | None:
        with self._lock:
            idle = self._idle.get(endpoint, [])
            while idle:
                connection = idle.pop()
                if self._clock() - connection.idle_since < IDLE_MAX and connection.usable:
                    return connection
                connection.close()
        return None

    def _keep(self, endpoint: Endpoint, connection: C) -> bool:
        connection.idle_since = self._clock()
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            kept = len(idle) < IDLE_CONNECTIONS_MAX and not self._closed
            if kept:
                idle.append(connection)
        return kept
