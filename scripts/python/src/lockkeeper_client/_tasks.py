"""Performs steps with the streams and tasks of asyncio."""

import asyncio
import logging
import os
import socket
import ssl
from contextlib import suppress
from typing import Any, TypeVar

from .core.clock import SECOND, Clock
from .core.driver import BaseConnection, Driver
from .core.endpoints import Endpoint
from .core.errors import Error
from .core.steps import CONNECT_TIME_MAX, READ_BYTES, Addresses, NotAnswered, NotSent, Steps

Result = TypeVar("Result")

log = logging.getLogger("lockkeeper_client")


class Connection(BaseConnection):
    """A connection with the streams of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes, timeout: int) -> None:
        # The answer shows whether it arrived.
        self._writer.write(data)

    async def receive(self, timeout: int) -> bytes | None:
        try:
            async with asyncio.timeout(timeout / SECOND):
                return await self._reader.read(READ_BYTES)
        except TimeoutError:
            return None
        except OSError as error:
            raise NotAnswered(str(error)) from error

    @property
    def usable(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.transport.abort()

    def abandon(self) -> None:
        sock: socket.socket | None = self._writer.get_extra_info("socket")
        if sock is not None and 0 <= (number := sock.fileno()):
            # The child shares the selector of the parent's loop. Under the number of another file, the end of the
            # transport in the child neither sends the end of TLS nor removes the parent's socket from the selector.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number, inheritable=False)
            os.close(null)


def _begun(endpoint: Endpoint) -> asyncio.Task[Addresses]:
    """Looks up the addresses of a host in a task, because nothing bounds how long that takes."""
    loop = asyncio.get_running_loop()
    steps = loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    lookup = loop.create_task(steps, name="lockkeeper")
    # An error that no attempt waits for is not logged.
    lookup.add_done_callback(lambda lookup: lookup.cancelled() or lookup.exception())
    return lookup


class Tasks(Driver[Connection]):
    """Runs operations in the calling task, and others in tasks of their own."""

    def __init__(self, clock: Clock, tls: ssl.SSLContext | None) -> None:
        super().__init__(clock, tls)
        self._background: set[asyncio.Task[None]] = set()

    async def connect(self, endpoint: Endpoint, timeout: int) -> Connection:
        longest = min(timeout, CONNECT_TIME_MAX)
        end = self._clock() + longest
        try:
            context = (self._tls or ssl.create_default_context()) if endpoint.tls else None
            addresses = await self._addresses(endpoint, end, longest)
            failed = OSError("the host has no address")
            for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
                try:
                    return self.opened(await self._connected(endpoint, context, address, end, left))
                except OSError as error:
                    failed = error
            raise failed
        except (OSError, ValueError) as error:
            # A name that cannot be encoded is a ValueError.
            raise NotSent(str(error) or "no connection in time") from error

    async def _addresses(self, endpoint: Endpoint, end: int, longest: int) -> Addresses:
        with suppress(socket.gaierror):
            # An address needs no thread: those that look up names may all be busy.
            flags = socket.AI_NUMERICHOST
            return socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
        lookup = self._lookup(endpoint, lambda: _begun(endpoint))
        await asyncio.wait({lookup}, timeout=longest / SECOND)
        return self._found(endpoint, lookup, end, longest)

    async def _connected(
        self, endpoint: Endpoint, context: ssl.SSLContext | None, found: tuple[Any, ...], end: int, left: int
    ) -> Connection:
        """Connects to an address of a host, `left` of which are not tried. A silent one leaves the others their share.

        A handshake of TLS may take half of the time, and all of it at the last address.
        """
        family, kind, protocol, _, address = found
        name = endpoint.host if context is not None else None
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(self._share(end, left)):
                await asyncio.get_running_loop().sock_connect(sock, address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(self._share(end, min(left, 2))):
                return Connection(*await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name))
        except BaseException:
            sock.close()
            raise

    async def run(self, steps: Steps[Result], stream: list[Connection] | None = None) -> Result:
        """Performs the steps of an operation, and returns its result: see `Driver.actions`."""
        actions = self.actions(steps, stream, lambda duration: asyncio.sleep(duration / SECOND))
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                action = actions.throw(error) if error is not None else actions.send(value)
            except StopIteration as end:
                result: Result = end.value
                return result
            value, error = None, None
            try:
                value = await action()
            except BaseException as failed:
                error = failed

    def spawn(self, steps: Steps[Any]) -> asyncio.Task[None]:
        """Performs the steps of an operation in a task. Its errors are logged."""

        async def work() -> None:
            with suppress(Exception):
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
        """Drops the parent's connections and tasks in the child of a fork."""
        super().forked()
        self._background = set()

    async def close(self, patience: int) -> None:
        """Waits until the background operations are done, at most `patience` ns, and closes the idle connections."""
        self._closed = True
        tasks = self._background - {asyncio.current_task()}
        if tasks:
            _, open_tasks = await asyncio.wait(tasks, timeout=patience / SECOND)
            for task in open_tasks:
                task.cancel()
        for _, lookup in self._lookups.values():
            lookup.cancel()
        self._lookups = {}
        self.close_idle()
