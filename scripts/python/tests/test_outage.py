"""How long a call works on an outage, by a clock of the test, and addresses that no host has."""

import asyncio
import errno
import logging
import socket
import ssl
import threading
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any

import pytest

from lockkeeper_client import Client, Error, InvalidArgument, OutcomeUnknown, Unavailable, _process
from lockkeeper_client._tasks import Tasks
from lockkeeper_client._threads import Threads, Wake
from lockkeeper_client.core.base import check
from lockkeeper_client.core.claim import LockRequest, acquire
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.driver import BaseConnection, Driver
from lockkeeper_client.core.endpoints import Endpoint, Endpoints, endpoint
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import close
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.session import Session, open_session
from lockkeeper_client.core.steps import (
    CONNECT_TIME_MAX,
    LOOKUP_AGE_MAX,
    Exchange,
    Listen,
    NotAnswered,
    NotSent,
    Pause,
    Steps,
)
from lockkeeper_client.sync import Session as ThreadSession

PATIENCE = 5 * SECOND


class Outage:
    """A clock, and nodes none of which answers: their addresses drop the packets, or the nodes are silent.

    The next attempts take the times in `fates`, and then the connection breaks, or was refused if it took none.
    """

    def __init__(self, sent: bool = False, patience: int = PATIENCE, fates: Iterable[int] = ()) -> None:
        self.now = 0
        self.attempts: list[int] = []
        """When each attempt began."""
        self.link = Link(Endpoints(["http://a:1"]), "default", None, lambda: self.now, patience)
        self._sent = sent
        self._fates = iter(fates)

    def session(self) -> Session:
        """Returns a session of 10 min that was opened before."""
        opened = {"session": "1", "ttl_ms": 600_000, "log_time_ms": 1_000, "deadline_ms": 601_000}
        return Session(self.link, "h", Answer(0, Head(201, {}), opened))

    def run(self, steps: Steps[Any]) -> None:
        """Performs the steps of an operation until it ends."""
        error: BaseException | None = None
        while True:
            step = steps.throw(error) if error else next(steps)
            error = None
            if isinstance(step, Pause):
                self.now += step.duration
                continue
            assert isinstance(step, Exchange)
            self.attempts.append(self.now)
            longest = step.timeout if self._sent else min(step.timeout, CONNECT_TIME_MAX)
            fate = next(self._fates, None)
            self.now += longest if fate is None else fate
            sent = self._sent if fate is None else bool(fate)
            error = NotAnswered("a test") if sent else NotSent("a test")


@pytest.mark.parametrize("sent", [False, True])
def test_an_outage_is_no_longer_than_the_request_timeout(sent: bool) -> None:
    """The outage begins with the first attempt, and the last attempt gets only what is left."""
    for call in ("check", "open"):
        outage = Outage(sent)
        steps: Steps[Any] = check(outage.link, "a", 7)
        if call == "open":
            steps = open_session(outage.link, Metadata("w", "h"), None, False)
        with pytest.raises(OutcomeUnknown if sent else Unavailable):
            outage.run(steps)
        assert PATIENCE - SECOND <= outage.now <= PATIENCE
        assert 1 < len(outage.attempts)
        assert outage.attempts[-1] <= PATIENCE * 9 // 10, "an attempt with too little time hides the cause"


def test_the_last_attempt_is_made_at_the_end() -> None:
    """All nodes refuse the connection: the last pause is shortened, and the last attempt gets its part of the time."""
    for patience in (PATIENCE, 20 * SECOND):
        refused = Outage(patience=patience, fates=repeat(0))
        with pytest.raises(Unavailable):
            refused.run(check(refused.link, "a", 7))
        assert refused.attempts[-1] == refused.now == patience * 9 // 10


@pytest.mark.parametrize("patience", [PATIENCE, 20 * SECOND])
def test_a_short_patience_asks_several_nodes(patience: int) -> None:
    """A close has 2 s, also if the client is patient: after a node that refuses or is silent it asks others."""
    for outage in (Outage(patience=patience, fates=repeat(0)), Outage(True, patience)):
        with suppress(StopIteration):
            outage.run(close(outage.session(), 2 * SECOND))
        assert 1 < len(outage.attempts) and outage.now <= 2 * SECOND
        assert SECOND <= outage.attempts[-1] <= 9 * SECOND // 5


@pytest.mark.parametrize("sent", [False, True])
def test_a_bad_certificate_is_named_after_another_failure(sent: bool) -> None:
    """The authority of a node is unknown, and the last attempt fails for another reason: the error names both."""
    outage = Outage(sent)
    steps = check(outage.link, "a", 7)
    next(steps)
    refused = NotSent("the certificate of a node")
    refused.__cause__ = ssl.SSLCertVerificationError("an unknown authority")
    assert isinstance(steps.throw(refused), Pause)
    with pytest.raises(OutcomeUnknown if sent else Unavailable, match=r"certificate.*; the last attempt: .*a test"):
        outage.run(steps)


def test_an_answer_forgets_a_bad_certificate() -> None:
    """The certificate was corrected during the first call. A later outage of the same caller is another one."""
    outage = Outage()
    retry = outage.link.retry()

    def call() -> Steps[Answer]:
        return retry.until_answered(lambda timeout: outage.link.call("check", {}, timeout))

    steps = call()
    next(steps)
    refused = NotSent("the certificate of a node")
    refused.__cause__ = ssl.SSLCertVerificationError("an unknown authority")
    steps.throw(refused)
    outage.now += SECOND
    assert isinstance(next(steps), Exchange)
    with pytest.raises(StopIteration):
        steps.send((Head(200, {}), b"{}"))
    with pytest.raises(Unavailable) as failed:
        outage.run(call())
    assert "certificate" not in str(failed.value)


def test_a_node_that_asks_for_a_long_pause_ends_the_call() -> None:
    """The node asks for a pause that leaves no time for an attempt: the call ends at once with its error."""
    outage = Outage()
    steps = check(outage.link, "a", 7)
    next(steps)
    problem = b'{"error": "overloaded", "pause_ms": 4500}'
    with pytest.raises(Unavailable):
        steps.send((Head(503, {"content-type": "application/problem+json"}), problem))


@pytest.mark.parametrize("wait", [3, 10])
def test_a_waiter_leaves_a_silent_node(wait: int) -> None:
    """A node is silent from the beginning: only its silence after the wait counts, and another one is asked."""
    outage = Outage(True)
    with pytest.raises(OutcomeUnknown):
        outage.run(acquire(outage.session(), LockRequest(("a",), wait * SECOND), Metadata("w", "h")))
    assert outage.attempts == [0, (wait + 5) * SECOND + PATIENCE // 2]


def test_a_rolling_restart_ends_no_wait() -> None:
    """One node refuses, and the next ones are restarted during the wait, which continues. A later outage is bounded."""
    restarts = [0, *[time * SECOND // 10 for time in (46, 60, 95, 99)]]
    outage = Outage(fates=[*restarts, *[SECOND] * 20])
    with pytest.raises(OutcomeUnknown):
        outage.run(acquire(outage.session(), LockRequest(("a",), None), Metadata("w", "h")))
    assert len(restarts) < len(outage.attempts)
    assert outage.now <= sum(restarts) + SECOND + PATIENCE


def test_connections_that_break_outlast_no_wait() -> None:
    """A proxy cuts each poll after 3 s, again and again: the request ends soon after its wait."""
    outage = Outage(fates=repeat(3 * SECOND))
    with pytest.raises(OutcomeUnknown):
        outage.run(acquire(outage.session(), LockRequest(("a",), 60 * SECOND), Metadata("w", "h")))
    assert 60 * SECOND <= outage.now <= 70 * SECOND


def test_a_node_that_stops_during_the_wait_begins_the_outage() -> None:
    """A node answers a long poll that it stops: the outage begins then, and another node is asked."""
    outage = Outage()
    steps = acquire(outage.session(), LockRequest(("a",), None), Metadata("w", "h"))
    next(steps)
    assert isinstance(steps.throw(NotSent("a test")), Pause)
    outage.now += SECOND // 100
    assert isinstance(next(steps), Exchange)
    outage.now += 9 * SECOND
    stopping = b'{"error": "stopping", "advice": "retry"}'
    assert isinstance(steps.send((Head(503, {"content-type": "application/problem+json"}), stopping)), Pause)


def test_an_attempt_that_was_not_sent_did_not_wait() -> None:
    """An acquire may wait for 10 s. Its outage begins with the attempt that does not reach the node."""
    outage = Outage()
    with pytest.raises(Unavailable):
        outage.run(acquire(outage.session(), LockRequest(("a",), None), Metadata("w", "h")))
    assert all(began < PATIENCE for began in outage.attempts)
    assert outage.now <= PATIENCE + CONNECT_TIME_MAX


class _Silent:
    """A socket whose connect takes as long as it may, unless the address refuses it."""

    outage: Outage
    refuses = False

    def __init__(self, family: int, *_: object) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family here")
        self._timeout = 0.0

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def connect(self, address: object) -> None:
        self.outage.attempts.append(self.outage.now)
        if self.refuses:
            raise ConnectionRefusedError
        self.outage.now += round(self._timeout * SECOND)
        raise TimeoutError(f"{address} is silent")

    def close(self) -> None: ...


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Outage:
    """A host with three addresses that drop all packets."""
    outage = Outage()
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{last}", 1)) for last in (1, 2, 3)]

    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return addresses

    def wait(_: Wake, duration: int) -> None:
        outage.now += duration

    monkeypatch.setattr(_Silent, "outage", outage, raising=False)
    monkeypatch.setattr(socket, "socket", _Silent)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(Wake, "wait", wait)
    return outage


def test_all_addresses_of_a_host_share_one_time(silent: Outage) -> None:
    """A silent address leaves the others their share: each of the three is tried, all of them within 2 s."""
    with pytest.raises(NotSent, match="silent"):
        Threads(lambda: silent.now, None).connect(Endpoint("a", 1, False), PATIENCE)
    assert len(silent.attempts) == 3 and silent.now <= CONNECT_TIME_MAX


def test_an_unusable_address_hides_no_other(silent: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no IPv6: the next address of the host is tried all the same."""
    known = socket.getaddrinfo("a", 1)

    def resolve(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0)), *known]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(NotSent, match="silent"):
        Threads(lambda: silent.now, None).connect(Endpoint("a", 1, False), PATIENCE)
    assert len(silent.attempts) == 3


def test_a_task_tries_the_address_after_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address of a host drops all packets: a client for asyncio reaches the node at the second one."""
    connect = BaseSelectorEventLoop.sock_connect
    resolve = socket.getaddrinfo

    sockets: list[socket.socket] = []

    async def silent_at_first(loop: Any, sock: socket.socket, address: Any) -> None:
        sockets.append(sock)
        if address[0] == "127.0.0.2":
            await asyncio.Event().wait()
        await connect(loop, sock, address)

    def two(host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "node":
            return resolve(host, port, *args, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (2, 1)]

    create = asyncio.BaseEventLoop.create_connection

    async def as_uvloop(
        loop: Any, factory: Any, host: Any = None, port: Any = None, *, sock: Any, ssl: Any, server_hostname: Any
    ) -> Any:
        """Has only options that the loop of uvloop has, too."""
        return await create(loop, factory, host, port, sock=sock, ssl=ssl, server_hostname=server_hostname)

    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        tasks = Tasks(lambda: 0, None)
        (await tasks.connect(Endpoint("node", server.sockets[0].getsockname()[1], False), PATIENCE)).close()
        server.close()

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", silent_at_first)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", as_uvloop)
    monkeypatch.setattr(socket, "getaddrinfo", two)
    asyncio.run(main())
    assert [sock.fileno() for sock in sockets] == [-1, -1], "no socket stays open"


class _Resolver:
    """Resolves the name `node` to `addresses`, but not before it is `released`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: tuple[Any, ...]) -> None:
        self.released = threading.Event()
        self.lookups = 0
        self.duration = 0
        """How long a lookup takes on the clock of `outage`."""
        self.outage = Outage()
        self._resolve = socket.getaddrinfo
        self._addresses = addresses
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "node":
            return self._resolve(host, port, *args, **named)
        if named.get("flags") == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        self.lookups += 1
        self.released.wait(10)
        self.outage.now += self.duration
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, port, *rest)) for at, *rest in self._addresses]


async def _node() -> tuple[asyncio.Server, Endpoint]:
    """Returns a server that closes each connection, and its address under the name `node`."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    return server, Endpoint("node", server.sockets[0].getsockname()[1], False)


@pytest.mark.parametrize(("later", "lookups"), [(0, 1), (LOOKUP_AGE_MAX + 1, 2)])
def test_a_task_waits_no_longer_than_its_time_for_a_name(
    monkeypatch: pytest.MonkeyPatch, later: int, lookups: int
) -> None:
    """Two attempts fail in time while the resolver is slow. Its answer is used soon after, but not much later."""
    resolver = _Resolver(monkeypatch, ("127.0.0.1",))

    async def main() -> None:
        server, node = await _node()
        tasks = Tasks(lambda: resolver.outage.now, None)
        for _ in range(2):
            with pytest.raises(NotSent, match="not resolved"):
                await tasks.connect(node, SECOND // 100)
        (lookup,) = asyncio.all_tasks() - {asyncio.current_task()}
        resolver.released.set()
        await asyncio.wait([lookup])
        resolver.outage.now += later
        (await tasks.connect(node, PATIENCE)).close()
        server.close()

    asyncio.run(main())
    assert resolver.lookups == lookups


def test_an_address_needs_no_thread() -> None:
    """All threads of the loop are busy: a client for asyncio reaches a node by its address, which is no name."""
    released = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, released.wait)
        server, node = await _node()
        try:
            (await Tasks(lambda: 0, None).connect(Endpoint("127.0.0.1", node.port, False), PATIENCE)).close()
        finally:
            released.set()
        await busy
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize(("later", "lookups"), [(0, 1), (LOOKUP_AGE_MAX + 1, 2)])
def test_a_thread_waits_no_longer_than_its_time_for_a_name(
    monkeypatch: pytest.MonkeyPatch, later: int, lookups: int
) -> None:
    """Two attempts fail in time while the resolver is slow. An exit does not wait for it, and a later attempt may."""
    resolver, before = _Resolver(monkeypatch, ("127.0.0.1",)), set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads, node = Threads(lambda: resolver.outage.now, None), Endpoint("node", server.getsockname()[1], False)
        for _ in range(2):
            with pytest.raises(NotSent, match="not resolved"):
                threads.connect(node, SECOND // 100)
        (lookup,) = set(threading.enumerate()) - before
        assert lookup.daemon
        resolver.released.set()
        lookup.join()
        resolver.outage.now += later
        threads.connect(node, PATIENCE).close()
    assert resolver.lookups == lookups


def test_a_process_without_threads_resolves_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter exits and starts no threads: the thread that closes the sessions looks up the name itself."""
    resolver = _Resolver(monkeypatch, ("127.0.0.1",))
    resolver.released.set()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    with socket.create_server(("127.0.0.1", 0)) as server:
        Threads(lambda: 0, None).connect(Endpoint("node", server.getsockname()[1], False), PATIENCE).close()
    assert resolver.lookups == 1


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("duration", [SECOND * 3 // 2, SECOND * 3])
def test_the_addresses_of_a_slow_lookup_get_their_time(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool, duration: int
) -> None:
    """A lookup is part of the time of an attempt. If it leaves too little, the next attempt looks up no other."""
    resolver = _Resolver(monkeypatch, ("127.0.0.1",))
    resolver.released.set()
    resolver.duration = duration
    lookups: list[int] = []
    late: list[bool] = []

    def clock() -> int:
        return resolver.outage.now

    async def main() -> None:
        threads, tasks = Threads(clock, None), Tasks(clock, None)
        # No node listens at this port while it is bound.
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            node = Endpoint("node", bound.getsockname()[1], False)
            for _ in range(3):
                with pytest.raises(NotSent) as failed:
                    await tasks.connect(node, PATIENCE) if asynchronous else threads.connect(node, PATIENCE)
                lookups.append(resolver.lookups)
                late.append("not resolved" in str(failed.value))

    asyncio.run(main())
    too_late = CONNECT_TIME_MAX < duration
    assert lookups == [1, 1, 2] and late == [too_late, False, too_late]


def test_an_attempt_drops_only_its_own_lookup() -> None:
    """An attempt is late, and the name is looked up again: the new addresses stay for the attempt that waits."""
    outage, node, first, second = Outage(), Endpoint("node", 1, False), Future[Any](), Future[Any]()
    driver = _SlowDriver(outage)
    for lookup in (first, second):
        lookup.set_result([])
        assert driver._lookup(node, partial(next, iter([lookup]))) is lookup  # pyright: ignore[reportPrivateUsage]
        outage.now += LOOKUP_AGE_MAX + 1
    end = outage.now + SECOND
    assert driver._found(node, first, end, SECOND) == []  # pyright: ignore[reportPrivateUsage]
    outage.now -= LOOKUP_AGE_MAX
    assert driver._lookup(node, Future[Any]) is second  # pyright: ignore[reportPrivateUsage]


def _without_certificates(purpose: int) -> ssl.SSLContext:
    """Returns a context whose handshakes need no certificate."""
    context = ssl.SSLContext(purpose)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH:@SECLEVEL=0")
    return context


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_failed_handshake_leaves_the_other_addresses(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool, frozen: bool
) -> None:
    """Three nodes have one name. The first one is frozen, or its handshake fails: the second one is reached."""
    resolve = socket.getaddrinfo
    trusting, serving = (_without_certificates(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
    ports: list[int] = []

    def three(host: Any, port: Any, *args: Any, **named: Any) -> Any:
        if host != "node":
            return resolve(host, port, *args, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

    def connect() -> int:
        threads = Threads(lambda: 0, trusting)
        connection = threads.connect(Endpoint("node", 1, True), SECOND)
        port: int = connection._socket.getpeername()[1]  # pyright: ignore[reportPrivateUsage]
        connection.close()
        return port

    async def reached() -> int:
        if not asynchronous:
            return await asyncio.to_thread(connect)
        connection = await Tasks(lambda: 0, trusting).connect(Endpoint("node", 1, True), SECOND)
        port: int = connection._writer.get_extra_info("peername")[1]  # pyright: ignore[reportPrivateUsage]
        connection.close()
        return port

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            closing = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            node = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
            first, second = (server.sockets[0].getsockname()[1] for server in (closing, node))
            ports.extend([silent.getsockname()[1] if frozen else first, second, first])
            assert await reached() == second
            closing.close()
            node.close()

    monkeypatch.setattr(socket, "getaddrinfo", three)
    asyncio.run(main())


def test_the_end_of_a_client_ends_its_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is closed while a name is looked up: the task ends, and the attempt that waits for it fails."""
    resolver = _Resolver(monkeypatch, ("127.0.0.1",))

    async def main() -> None:
        tasks = Tasks(lambda: 0, None)
        attempt = asyncio.create_task(tasks.connect(Endpoint("node", 1, False), PATIENCE))
        while not resolver.lookups:
            await asyncio.sleep(0)
        lookups = asyncio.all_tasks() - {asyncio.current_task(), attempt}
        await tasks.close(0)
        await asyncio.wait(lookups)
        assert all(lookup.cancelled() for lookup in lookups)
        with pytest.raises(NotSent, match="not resolved"):
            await attempt
        resolver.released.set()

    asyncio.run(main())


def test_a_task_connects_to_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a node is valid on one link only. A connection to it names the link."""
    resolver = _Resolver(monkeypatch, ("fe80::1", 0, 3))
    resolver.released.set()
    tried: list[object] = []

    async def unreachable(loop: Any, sock: socket.socket, address: Any) -> None:
        tried.append(address)
        raise OSError("a test")

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", unreachable)
    with pytest.raises(NotSent, match="a test"):
        asyncio.run(Tasks(lambda: 0, None).connect(Endpoint("node", 1, False), PATIENCE))
    assert tried == [("fe80::1", 1, 0, 3)]


@pytest.mark.parametrize(("addresses", "times"), [(4, [0.5, 1.0]), (1, [2.0, 2.0])])
def test_a_handshake_has_half_of_the_time(monkeypatch: pytest.MonkeyPatch, addresses: int, times: list[float]) -> None:
    """The first address is reached, and its share bounds no handshake. At the last one it has all the time."""
    resolver = _Resolver(monkeypatch, *[("127.0.0.1",)] * addresses)
    resolver.released.set()
    given: list[float] = []
    timeout = asyncio.timeout

    def recorded(seconds: float) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(seconds)

    async def main() -> None:
        server, node = await _node()
        (await Tasks(lambda: 0, None).connect(node, 2 * SECOND)).close()
        server.close()

    monkeypatch.setattr(asyncio, "timeout", recorded)
    asyncio.run(main())
    assert given == times


class _Slow(BaseConnection):
    """A connection to a silent node."""

    def __init__(self, outage: Outage, sent: list[int]) -> None:
        super().__init__()
        self._outage = outage
        self._sent = sent

    def send(self, data: bytes, timeout: int) -> None:
        """Sends at once."""
        self._sent.append(self._outage.now)

    def receive(self, timeout: int) -> None:
        """Waits for nothing."""
        self._outage.now += timeout

    @property
    def usable(self) -> bool:
        return True

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class _SlowDriver(Driver[_Slow]):
    """Connects as slowly as it may."""

    def __init__(self, outage: Outage) -> None:
        super().__init__(lambda: outage.now, None)
        self._outage = outage
        self.sent: list[int] = []
        """When each request was sent."""

    def connect(self, endpoint: Endpoint, timeout: int) -> _Slow:
        self._outage.now += min(timeout, CONNECT_TIME_MAX)
        return _Slow(self._outage, self.sent)

    def run(self, step: Exchange | Listen) -> None:
        """Performs one step, until it fails."""

        def steps() -> Steps[None]:
            yield step

        actions, value = self.actions(steps(), None, lambda duration: None), None
        while True:
            value = actions.send(value)()


@pytest.mark.parametrize("step", [Exchange, Listen])
def test_the_connection_is_part_of_the_time_of_an_attempt(step: Any) -> None:
    """A node is reached slowly, and then it is silent: the attempt ends in time all the same."""
    outage = Outage()
    with pytest.raises(NotAnswered):
        _SlowDriver(outage).run(step(Endpoint("a", 1, False), b"", 5 * SECOND // 2))
    assert outage.now == 5 * SECOND // 2


@pytest.mark.parametrize("step", [Exchange, Listen])
def test_a_connection_that_comes_too_late_is_kept(step: Any) -> None:
    """Connecting takes all the time of an attempt: nothing is sent, and the next attempt uses the connection."""
    outage = Outage()
    driver = _SlowDriver(outage)
    with pytest.raises(NotSent):
        driver.run(step(Endpoint("a", 1, False), b"", SECOND))
    assert outage.now == SECOND and not driver.sent
    with pytest.raises(NotAnswered):
        driver.run(Exchange(Endpoint("a", 1, False), b"", SECOND))
    assert driver.sent == [SECOND] and outage.now == 2 * SECOND


@pytest.mark.parametrize("refuses", [False, True])
def test_an_exit_takes_2_s_without_nodes(silent: Outage, monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    """The interpreter exits with two open sessions, and no address answers, or each refuses: all of it takes 2 s."""
    monkeypatch.setattr(_Silent, "refuses", refuses)
    monkeypatch.setattr(_process, "_open", {})
    monkeypatch.setattr(_process, "_exit_begun", {})
    for _ in range(2):
        _process.opened(silent.session(), None)
    _process._exiting()  # pyright: ignore[reportPrivateUsage]
    assert silent.attempts and silent.now <= 2 * SECOND + SECOND // 100


def test_a_session_that_no_thread_renews_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may start no more threads, and its log raises: the caller gets an error, and the session ends."""
    state, closed = Outage().session(), list[object]()

    def close(session: Session, patience: int, *, lost: bool = False) -> Steps[None]:
        closed.append(session)
        yield from ()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def log(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(_process, "_open", {})
    monkeypatch.setattr("lockkeeper_client.core.keep.close", close)
    monkeypatch.setattr(logging.Logger, "log", log)
    with Client("http://127.0.0.1:1") as lk:
        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(Unavailable, match="no thread"):
            ThreadSession(lk._settings, lk._threads, state)  # pyright: ignore[reportPrivateUsage]
    assert closed == [state] and state.ended is not None and not _process.is_open(state)


def test_at_the_exit_a_session_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter exits, and starts no threads: a last lock works without a renewal, and the exit closes it."""
    state = Outage().session()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(_process, "_open", {})
    with Client("http://127.0.0.1:1") as lk, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        patched.setattr(threading.main_thread(), "is_alive", lambda: False)
        ThreadSession(lk._settings, lk._threads, state)  # pyright: ignore[reportPrivateUsage]
        assert state.ended is None and _process.is_open(state)


@pytest.mark.parametrize(
    "url",
    [
        "http://.svc:7621",
        "http://node..x:7621",
        f"http://{'a' * 64}:1",
        f"http://{'日' * 64}:1",
        "http://[::1",
        "http://[zz]:1",
        "http://a\0b:1",
        "http://a:x",
        "http://:1",
        "a/b:1",
    ],
)
def test_a_host_that_cannot_exist_is_refused_at_once(url: str) -> None:
    """One malformed address among others would end the renewals as soon as it is their turn."""
    with pytest.raises(InvalidArgument, match=r"^endpoints: "):
        Client(["http://127.0.0.1:1", url])


def test_a_host_is_written_as_dns_knows_it() -> None:
    """A name that is not ASCII is encoded, for the connection as for the header `Host`."""
    assert str(endpoint("http://日本:1")) == "http://xn--wgv71a:1"
    for same in ("http://[::1]:1", "https://db1.example.:7621", "http://127.0.0.1:7621", f"http://{'a' * 63}:1"):
        assert str(endpoint(same)) == same
    outage = Outage()
    outage.link.endpoints = Endpoints(["http://日本:1"])
    request = next(check(outage.link, "a", 7))
    assert isinstance(request, Exchange) and b"\r\nhost: xn--wgv71a:1\r\n" in request.request


@pytest.mark.parametrize("tls", [False, True])
def test_a_host_that_cannot_be_encoded_is_not_reached(tls: bool) -> None:
    """It is an error of the attempt, and not of the thread or task that renews the session."""
    malformed = Endpoint(".svc", 1, tls)
    with pytest.raises(NotSent):
        Threads(lambda: 0, None).connect(malformed, SECOND)

    async def main() -> None:
        with pytest.raises(NotSent):
            await Tasks(lambda: 0, None).connect(malformed, SECOND)

    asyncio.run(main())
    assert not issubclass(NotSent, Error)
