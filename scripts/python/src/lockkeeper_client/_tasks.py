"""Performs steps with the streams and tasks of asyncio."""

import asyncio
import logging
import os
import socket
import ssl
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from .core.clock import SECOND, Clock
from .core.driver import BaseConnection, Driver
from .core.endpoints import Endpoint
from .core.errors import Error
from .core.steps import CONNECT_TIME_MAX, READ_BYTES, NotAnswered, NotSent, Steps

Result = TypeVar("Result")

log = logging.getLogger("lockkeeper_client")

Addresses: TypeAlias = list[tuple[Any, ...]]

LOOKUP_AGE_MAX = 60 * SECOND
"""Addresses whose lookup began earlier are not used: the host may have others now."""


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


class Tasks(Driver[Connection]):
    """Runs operations in the calling task, and others in tasks of their own."""

    def __init__(self, clock: Clock, tls: ssl.SSLContext | None) -> None:
        super().__init__(clock, tls)
        self._background: set[asyncio.Task[None]] = set()
        self._lookups: dict[Endpoint, tuple[int, asyncio.Task[Addresses]]] = {}
        """When each lookup began that runs, or that no attempt has used."""

    async def connect(self, endpoint: Endpoint, timeout: int) -> Connection:
        context = (self._tls or ssl.create_default_context()) if endpoint.tls else None
        name = endpoint.host if context is not None else None
        longest = min(timeout, CONNECT_TIME_MAX)
        try:
            addresses = await self._addresses(endpoint, longest)
            # A name that resolves slowly leaves its addresses their time.
            end = self._clock() + longest
            sock = await self._connected(addresses, end)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                async with asyncio.timeout(max(1, end - self._clock()) / SECOND):
                    reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name)
            except BaseException:
                sock.close()
                raise
        except (OSError, ValueError) as error:
            # A name that cannot be encoded is a ValueError.
            raise NotSent(str(error) or "no connection in time") from error
        return self.opened(Connection(reader, writer))

    async def _addresses(self, endpoint: Endpoint, timeout: int) -> Addresses:
        """Returns the addresses of the host. After `timeout` ns the lookup continues for the next attempt."""
        now = self._clock()
        began, lookup = self._lookups.get(endpoint, (now, None))
        if lookup is None or (lookup.done() and LOOKUP_AGE_MAX < now - began):
            loop = asyncio.get_running_loop()
            steps = loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            lookup = loop.create_task(steps, name="lockkeeper")
            self._lookups[endpoint] = now, lookup

            def ended(lookup: asyncio.Task[Addresses]) -> None:
                if lookup.cancelled() or lookup.exception() is not None:
                    self._lookups.pop(endpoint, None)

            lookup.add_done_callback(ended)
        await asyncio.wait({lookup}, timeout=timeout / SECOND)
        if not lookup.done() or lookup.cancelled():
            raise NotSent("the name is not resolved in time")
        # If these addresses are of no use, the next attempt looks for others.
        self._lookups.pop(endpoint, None)
        return lookup.result()

    async def _connected(self, addresses: Addresses, end: int) -> socket.socket:
        """Tries the addresses of a host one after another until `end`. A silent one leaves the others their share."""
        loop = asyncio.get_running_loop()
        failed = OSError("the host has no address")
        for left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                connecting = socket.socket(family, kind, protocol)
                try:
                    connecting.setblocking(False)
                    async with asyncio.timeout(max(1, (end - self._clock()) // left) / SECOND):
                        await loop.sock_connect(connecting, address)
                except BaseException:
                    connecting.close()
                    raise
                return connecting
            except OSError as error:
                failed = error
        raise failed

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
        self._lookups = {}

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
