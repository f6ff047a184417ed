"""Performs steps with blocking sockets and threads."""

import logging
import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from .core.clock import SECOND
from .core.driver import BaseConnection, Driver
from .core.endpoints import Endpoint
from .core.errors import Error
from .core.steps import CONNECT_TIME_MAX, READ_BYTES, Addresses, NotAnswered, NotSent, Steps

Result = TypeVar("Result")

log = logging.getLogger("lockkeeper_client")


class Connection(BaseConnection):
    """A connection with a blocking socket."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._socket = connected

    def send(self, data: bytes, timeout: int) -> None:
        try:
            self._socket.settimeout(timeout / SECOND)
            self._socket.sendall(data)
        except OSError as error:
            raise NotAnswered(str(error)) from error

    def receive(self, timeout: int) -> bytes | None:
        try:
            self._socket.settimeout(timeout / SECOND)
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            return None
        except OSError as error:
            raise NotAnswered(str(error)) from error

    @property
    def usable(self) -> bool:
        # The node has neither closed it nor sent anything.
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return not selector.select(0)

    def close(self) -> None:
        self._socket.close()

    def abandon(self) -> None:
        os.close(self._socket.detach())


def _begun(resolve: Callable[[], Addresses]) -> Future[Addresses]:
    """Looks up the addresses of a host in a thread. Nothing bounds how long that takes, and no exit waits for it."""
    lookup: Future[Addresses] = Future()

    def work() -> None:
        try:
            lookup.set_result(resolve())
        except Exception as error:
            lookup.set_exception(error)

    threading.Thread(target=work, name="lockkeeper", daemon=True).start()
    return lookup


def exiting() -> bool:
    """Whether the interpreter exits. It may start no threads then."""
    return not threading.main_thread().is_alive()


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


class Threads(Driver[Connection]):
    """Runs operations in the calling thread, and others in daemon threads."""

    def connect(self, endpoint: Endpoint, timeout: int) -> Connection:
        longest = min(timeout, CONNECT_TIME_MAX)
        end = self._clock() + longest
        try:
            context = (self._tls or ssl.create_default_context()) if endpoint.tls else None
            addresses = self._addresses(endpoint, end, longest)
            failed = OSError("the host has no address")
            for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
                try:
                    return self.opened(Connection(self._connected(endpoint, context, address, end, left)))
                except OSError as error:
                    failed = error
            raise failed
        except (OSError, ValueError) as error:
            # A name that cannot be encoded is a ValueError.
            raise NotSent(str(error)) from error

    def _addresses(self, endpoint: Endpoint, end: int, longest: int) -> Addresses:
        resolve = partial(socket.getaddrinfo, endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        with suppress(socket.gaierror):
            return resolve(flags=socket.AI_NUMERICHOST)
        try:
            lookup = self._lookup(endpoint, lambda: _begun(resolve))
        except RuntimeError:
            # The interpreter exits, or the process may start no more threads.
            return resolve()
        wait([lookup], longest / SECOND)
        return self._found(endpoint, lookup, end, longest)

    def _connected(
        self, endpoint: Endpoint, context: ssl.SSLContext | None, found: tuple[Any, ...], end: int, left: int
    ) -> socket.socket:
        """Connects to an address of a host, `left` of which are not tried. A silent one leaves the others their share.

        A handshake of TLS may take half of the time, and all of it at the last address.
        """
        family, kind, protocol, _, address = found
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(self._share(end, left))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.settimeout(self._share(end, min(left, 2)))
            return context.wrap_socket(sock, server_hostname=endpoint.host) if context is not None else sock
        except BaseException:
            sock.close()
            raise

    def run(self, steps: Steps[Result], wake: Wake | None = None, stream: list[Connection] | None = None) -> Result:
        """Performs the steps of an operation, and returns its result: see `Driver.actions`."""
        actions = self.actions(steps, stream, (wake or Wake()).wait)
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
                value = action()
            except BaseException as failed:
                error = failed

    def spawn(self, steps: Steps[Any], wake: Wake | None = None, name: str = "lockkeeper") -> bool:
        """Performs the steps of an operation in a daemon thread. Its errors are logged.

        Returns whether the thread was started. The interpreter may refuse that at its exit, which closes the sessions.
        """

        def work() -> None:
            with suppress(Exception):
                try:
                    self.run(steps, wake)
                except Error as error:
                    log.debug("a background operation ended: %s", error)
                except Exception:
                    log.exception("a background operation failed")

        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except RuntimeError as error:
            level = logging.DEBUG if exiting() else logging.ERROR
            with suppress(Exception):
                log.log(level, "a background operation was not started: %s", error)
            steps.close()
            return False
        return True
