"""How long a call works on an outage, by a clock of the test, and addresses that no host has."""

import asyncio
import socket
import threading
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
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.session import Session, open_session
from lockkeeper_client.core.steps import CONNECT_TIME_MAX, Exchange, Listen, NotAnswered, NotSent, Pause, Steps
from lockkeeper_client.sync import Session as ThreadSession

PATIENCE = 5 * SECOND


class Outage:
    """A clock, and nodes none of which answers: their addresses drop the packets, or the nodes are silent."""

    def __init__(self, sent: bool = False) -> None:
        self.now = 0
        self.attempts: list[int] = []
        """When each attempt began."""
        self.link = Link(Endpoints(["http://a:1"]), "default", None, lambda: self.now, PATIENCE)
        self._sent = sent

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
            self.now += step.timeout if self._sent else min(step.timeout, CONNECT_TIME_MAX)
            error = NotAnswered("a test") if self._sent else NotSent("a test")


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

    def __init__(self, *_: object) -> None:
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


class _Slow(BaseConnection):
    """A connection to a silent node."""

    def __init__(self, outage: Outage) -> None:
        super().__init__()
        self._outage = outage

    def send(self, data: bytes, timeout: int) -> None:
        """Sends at once."""

    def receive(self, timeout: int) -> None:
        """Waits for nothing."""
        self._outage.now += timeout

    @property
    def usable(self) -> bool:
        return False

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class _SlowDriver(Driver[_Slow]):
    """Connects as slowly as it may."""

    def __init__(self, outage: Outage) -> None:
        super().__init__(lambda: outage.now, None)
        self._outage = outage

    def connect(self, endpoint: Endpoint, timeout: int) -> _Slow:
        self._outage.now += min(timeout, CONNECT_TIME_MAX)
        return _Slow(self._outage)


@pytest.mark.parametrize("step", [Exchange, Listen])
def test_the_connection_is_part_of_the_time_of_an_attempt(step: Any) -> None:
    """A node is reached slowly, and then it is silent: the attempt ends in time all the same."""
    outage = Outage()

    def steps() -> Steps[None]:
        yield step(Endpoint("a", 1, False), b"", 5 * SECOND // 2)

    actions, value = _SlowDriver(outage).actions(steps(), None, lambda duration: None), None
    with pytest.raises(NotAnswered):
        while True:
            value = actions.send(value)()
    assert outage.now == 5 * SECOND // 2


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
    """The process may start no more threads: the caller gets an error, and the session is closed at once."""
    state, closed = Outage().session(), list[object]()

    def close(session: Session, patience: int, *, lost: bool = False) -> Steps[None]:
        closed.append(session)
        yield from ()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("lockkeeper_client.core.keep.close", close)
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
