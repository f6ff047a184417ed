"""Performs steps with blocking sockets and threads."""

import logging
import os
import selectors
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from .core.clock import LONGEST_SLEEP, SECOND, Clock
from .core.endpoints import Endpoint
from .core.errors import Error
from .core.http import AnswerParser, Head, Malformed
from .core.steps import (
    CONNECT_TIME_MAX,
    IDLE_CONNECTIONS_MAX,
    IDLE_MAX,
    READ_BYTES,
    Exchange,
    Listen,
    Next,
    NotAnswered,
    NotSent,
    Pause,
    Step,
    Steps,
    Stop,
)

Result = TypeVar("Result")

log = logging.getLogger("lockkeeper_client")


class Connection:
    """A connection to one node, for one request at a time."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, timeout: int) -> None:
        try:
            seconds = min(timeout, CONNECT_TIME_MAX) / SECOND
            self._socket = socket.create_connection((endpoint.host, endpoint.port), seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if endpoint.tls:
                context = tls or ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=endpoint.host)
        except OSError as error:
            raise NotSent(str(error)) from error
        self.parser = AnswerParser()
        self.idle_since = 0

    def send(self, data: bytes, timeout: int) -> None:
        """Sends a request."""
        self.parser = AnswerParser()
        self._socket.settimeout(timeout / SECOND)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise NotAnswered(str(error)) from error

    def read_until(self, done: Callable[[], bool], clock: Clock, timeout: int, stop: Stop) -> None:
        """Feeds the parser until `done`. Reads the clock, and asks `stop`, at least once a second."""
        end = clock() + timeout
        while not done():
            if (error := stop()) is not None:
                raise error
            left = end - clock()
            if left <= 0:
                raise NotAnswered(f"no answer within {timeout / SECOND:.1f} s")
            self._socket.settimeout(min(left, LONGEST_SLEEP) / SECOND)
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise NotAnswered(str(error)) from error
            try:
                self.parser.feed(data) if data else self.parser.eof()
            except Malformed as error:
                raise NotAnswered(str(error)) from error

    @property
    def usable(self) -> bool:
        """Whether an idle connection can send another request: the node has neither closed it nor sent anything."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def abandon(self) -> None:
        """Closes the descriptor without a byte sent, because the parent of a fork uses the connection."""
        os.close(self._socket.detach())


class Wake:
    """Ends the pause of a thread early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ends the pause, or the next one."""
        self._event.set()

    def wait(self, duration: int) -> None:
        """Sleeps for `duration` ns, or until it is set."""
        if self._event.wait(duration / SECOND):
            self._event.clear()


class Threads:
    """Runs operations in the calling thread, and others in daemon threads. Keeps idle connections."""

    def __init__(self, clock: Clock, tls: ssl.SSLContext | None) -> None:
        self._clock = clock
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._closed = False

    def run(self, steps: Steps[Result], wake: Wake | None = None, stream: list[Connection] | None = None) -> Result:
        """Performs the steps of an operation, and returns its result.

        The next operation with the same `stream` continues to read what this one listens to.
        """
        listening: list[Connection] = [] if stream is None else stream
        wake = wake or Wake()
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                step = steps.throw(error) if error is not None else steps.send(value)
                value, error = None, None
                try:
                    value = self._perform(step, listening, wake)
                except BaseException as failed:  # The operation decides.
                    error = failed
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            if stream is None:
                self.disconnect(listening)

    def disconnect(self, stream: list[Connection]) -> None:
        """Closes the connection to which operations with this `stream` listen."""
        while stream:
            self._close(stream.pop())

    def spawn(self, steps: Steps[Any], wake: Wake | None = None, name: str = "lockkeeper") -> None:
        """Performs the steps of an operation in a daemon thread. Its errors are logged."""

        def work() -> None:
            try:
                self.run(steps, wake)
            except Error as error:
                log.debug("a background operation ended: %s", error)
            except Exception:
                log.exception("a background operation failed")

        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except RuntimeError as error:
            # The interpreter exits, and closes the sessions.
            log.debug("a background operation was not started: %s", error)
            steps.close()

    def close(self) -> None:
        """Closes the idle connections, and keeps no others from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                self._close(connection)

    def forked(self) -> None:
        """Drops the parent's connections in the child of a fork, without a byte sent."""
        self._lock = threading.Lock()
        for connection in self._open:
            try:
                connection.abandon()
            except OSError:
                pass
        self._idle, self._open = {}, weakref.WeakSet()

    def _perform(self, step: Step, stream: list[Connection], wake: Wake) -> Any:
        if isinstance(step, Exchange):
            return self._exchange(step)
        if isinstance(step, Listen):
            return self._listen(step, stream)
        if isinstance(step, Next):
            return self._next(step, stream[-1])
        assert isinstance(step, Pause)
        if (error := step.stop()) is not None:
            raise error
        wake.wait(min(step.duration, LONGEST_SLEEP))
        return None

    def _exchange(self, step: Exchange) -> tuple[Head, bytes]:
        connection = self._connection(step.endpoint, step.timeout)
        kept = False
        try:
            connection.send(step.request, step.timeout)
            connection.read_until(lambda: connection.parser.finished, self._clock, step.timeout, step.stop)
            parser = connection.parser
            assert parser.head is not None
            kept = parser.reusable and self._keep(step.endpoint, connection)
            return parser.head, parser.take()
        finally:
            if not kept:
                self._close(connection)

    def _listen(self, step: Listen, stream: list[Connection]) -> Head:
        self.disconnect(stream)
        connection = self._connection(step.endpoint, step.timeout)
        stream.append(connection)
        connection.send(step.request, step.timeout)
        connection.read_until(lambda: connection.parser.head is not None, self._clock, step.timeout, step.stop)
        assert connection.parser.head is not None
        return connection.parser.head

    def _next(self, step: Next, connection: Connection) -> bytes:
        parser, parts = connection.parser, [connection.parser.take()]

        def done() -> bool:
            parts[0] = parts[0] or parser.take()
            return bool(parts[0]) or parser.finished

        connection.read_until(done, self._clock, step.timeout, step.stop)
        return parts[0]

    def _connection(self, endpoint: Endpoint, timeout: int) -> Connection:
        with self._lock:
            idle = self._idle.get(endpoint, [])
            while idle:
                connection = idle.pop()
                if self._clock() - connection.idle_since < IDLE_MAX and connection.usable:
                    return connection
                self._open.discard(connection)
                connection.close()
        connection = Connection(endpoint, self._tls, timeout)
        with self._lock:
            self._open.add(connection)
        return connection

    def _keep(self, endpoint: Endpoint, connection: Connection) -> bool:
        connection.idle_since = self._clock()
        with self._lock:
            idle = self._idle.setdefault(endpoint, [])
            kept = len(idle) < IDLE_CONNECTIONS_MAX and not self._closed
            if kept:
                idle.append(connection)
        return kept

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()
