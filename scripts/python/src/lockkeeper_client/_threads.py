"""Performs steps with blocking sockets and threads."""

import logging
import os
import selectors
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any, TypeVar

from .core.clock import SECOND, Clock
from .core.driver import BaseConnection, Driver
from .core.endpoints import Endpoint
from .core.errors import Error
from .core.steps import CONNECT_TIME_MAX, READ_BYTES, NotAnswered, NotSent, Steps

Result = TypeVar("Result")

log = logging.getLogger("lockkeeper_client")


class Connection(BaseConnection):
    """A connection with a blocking socket."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, timeout: int, clock: Clock) -> None:
        super().__init__()
        try:
            addresses = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            # Nothing bounds how long a name takes to resolve, and the addresses get their time all the same.
            end = clock() + min(timeout, CONNECT_TIME_MAX)
            self._socket = _connected(addresses, end, clock)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if endpoint.tls:
                context = tls or ssl.create_default_context()
                self._socket.settimeout(max(1, end - clock()) / SECOND)
                self._socket = context.wrap_socket(self._socket, server_hostname=endpoint.host)
        except (OSError, ValueError) as error:
            # A name that cannot be encoded is a ValueError.
            raise NotSent(str(error)) from error

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


def _connected(addresses: list[tuple[Any, ...]], end: int, clock: Clock) -> socket.socket:
    """Tries the addresses of a host one after another until `end`. A silent one leaves the others their share."""
    failed = OSError("the host has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        try:
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.settimeout(max(1, (end - clock()) // left) / SECOND)
                connecting.connect(address)
            except BaseException:
                connecting.close()
                raise
            return connecting
        except OSError as error:
            failed = error
    raise failed


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
        return self.opened(Connection(endpoint, self._tls, timeout, self._clock))

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
