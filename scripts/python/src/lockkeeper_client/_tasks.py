"""Performs steps with the streams and tasks of asyncio."""

import asyncio
import logging
import socket
import ssl
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

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.parser = AnswerParser()
        self.idle_since = 0

    def send(self, data: bytes) -> None:
        """Sends a request. Its answer shows whether it arrived."""
        self.parser = AnswerParser()
        self._writer.write(data)

    async def read_until(self, done: Callable[[], bool], clock: Clock, timeout: int, stop: Stop) -> None:
        """Feeds the parser until `done`. Reads the clock, and asks `stop`, at least once a second."""
        end = clock() + timeout
        while not done():
            if (error := stop()) is not None:
                raise error
            left = end - clock()
            if left <= 0:
                raise NotAnswered(f"no answer within {timeout / SECOND:.1f} s")
            try:
                async with asyncio.timeout(min(left, LONGEST_SLEEP) / SECOND):
                    data = await self._reader.read(READ_BYTES)
            except TimeoutError:
                continue
            except (OSError, ssl.SSLError) as error:
                raise NotAnswered(str(error)) from error
            try:
                self.parser.feed(data) if data else self.parser.eof()
            except Malformed as error:
                raise NotAnswered(str(error)) from error

    @property
    def usable(self) -> bool:
        """Whether an idle connection can send another request: the node has not closed it."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Closes the connection at once."""
        self._writer.transport.abort()


async def connect(endpoint: Endpoint, tls: ssl.SSLContext | None, timeout: int) -> Connection:
    """Opens a connection."""
    context = (tls or ssl.create_default_context()) if endpoint.tls else None
    try:
        async with asyncio.timeout(min(timeout, CONNECT_TIME_MAX) / SECOND):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except OSError as error:
        raise NotSent(str(error) or "no connection in time") from error
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Connection(reader, writer)


def disconnect(stream: list[Connection]) -> None:
    """Closes the connection to which operations with this `stream` listen."""
    while stream:
        stream.pop().close()


class Tasks:
    """Runs operations in the calling task, and others in tasks of their own. Keeps idle connections."""

    def __init__(self, clock: Clock, tls: ssl.SSLContext | None) -> None:
        self._clock = clock
        self._tls = tls
        self._idle: dict[Endpoint, list[Connection]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self, steps: Steps[Result], stream: list[Connection] | None = None) -> Result:
        """Performs the steps of an operation, and returns its result.

        The next operation with the same `stream` continues to read what this one listens to.
        """
        listening: list[Connection] = [] if stream is None else stream
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                step = steps.throw(error) if error is not None else steps.send(value)
                value, error = None, None
                try:
                    value = await self._perform(step, listening)
                except BaseException as failed:  # The operation decides.
                    error = failed
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            if stream is None:
                disconnect(listening)

    def spawn(self, steps: Steps[Any]) -> asyncio.Task[None]:
        """Performs the steps of an operation in a task. Its errors are logged."""

        async def work() -> None:
            try:
                await self.run(steps)
            except Error as error:
                log.debug("a background operation ended: %s", error)
            except Exception:
                log.exception("a background operation failed")

        task = asyncio.get_running_loop().create_task(work(), name="lockkeeper")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def forked(self) -> None:
        """Forgets the connections and tasks of the parent in the child of a fork."""
        self._idle, self._background = {}, set()

    async def close(self, patience: int) -> None:
        """Waits until the background operations are done, at most `patience` ns, and closes the idle connections."""
        self._closed = True
        tasks = self._background - {asyncio.current_task()}
        if tasks:
            _, open_tasks = await asyncio.wait(tasks, timeout=patience / SECOND)
            for task in open_tasks:
                task.cancel()
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    async def _perform(self, step: Step, stream: list[Connection]) -> Any:
        if isinstance(step, Exchange):
            return await self._exchange(step)
        if isinstance(step, Listen):
            return await self._listen(step, stream)
        if isinstance(step, Next):
            return await self._next(step, stream[-1])
        assert isinstance(step, Pause)
        if (error := step.stop()) is not None:
            raise error
        await asyncio.sleep(min(step.duration, LONGEST_SLEEP) / SECOND)

    async def _exchange(self, step: Exchange) -> tuple[Head, bytes]:
        connection = await self._connection(step.endpoint, step.timeout)
        kept = False
        try:
            connection.send(step.request)
            await connection.read_until(lambda: connection.parser.finished, self._clock, step.timeout, step.stop)
            parser = connection.parser
            assert parser.head is not None
            kept = parser.reusable and self._keep(step.endpoint, connection)
            return parser.head, parser.take()
        finally:
            if not kept:
                connection.close()

    async def _listen(self, step: Listen, stream: list[Connection]) -> Head:
        disconnect(stream)
        connection = await connect(step.endpoint, self._tls, step.timeout)
        stream.append(connection)
        connection.send(step.request)
        await connection.read_until(lambda: connection.parser.head is not None, self._clock, step.timeout, step.stop)
        assert connection.parser.head is not None
        return connection.parser.head

    async def _next(self, step: Next, connection: Connection) -> bytes:
        parser, parts = connection.parser, [connection.parser.take()]

        def done() -> bool:
            parts[0] = parts[0] or parser.take()
            return bool(parts[0]) or parser.finished

        await connection.read_until(done, self._clock, step.timeout, step.stop)
        return parts[0]

    async def _connection(self, endpoint: Endpoint, timeout: int) -> Connection:
        idle = self._idle.get(endpoint, [])
        while idle:
            connection = idle.pop()
            if self._clock() - connection.idle_since < IDLE_MAX and connection.usable:
                return connection
            connection.close()
        return await connect(endpoint, self._tls, timeout)

    def _keep(self, endpoint: Endpoint, connection: Connection) -> bool:
        connection.idle_since = self._clock()
        idle = self._idle.setdefault(endpoint, [])
        kept = len(idle) < IDLE_CONNECTIONS_MAX and not self._closed
        if kept:
            idle.append(connection)
        return kept
