"""Cached holds: which use needs a request, and when the session gives a hold up."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import AsyncClient, Client, InvalidArgument, LockLost, NotAcquired, NotHeld, SessionEnded
from lockkeeper_client.core import cached
from lockkeeper_client.core.cached import UNUSED_MAX, UNUSED_TIME_MAX, give_up
from lockkeeper_client.core.claim import LockRequest, acquire, change
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.events import apply
from lockkeeper_client.core.follow import follow
from lockkeeper_client.core.holds import HoldState
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import keep
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.release import release
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, Listen, Next, NotAnswered, Pause, Step, Steps

TTL = 600 * SECOND
SOON = 5.0
"""Seconds within which a lock changes hands, also on a busy machine. No hold ends by itself within this time."""


class Cluster:
    """A session of a cluster that grants all requests. It performs the steps of operations, and records the calls."""

    def __init__(self) -> None:
        self.now = 0
        self.token = 0
        self.calls: list[str] = []
        self.background: list[Steps[Any]] = []
        self.refused = 0
        """How many of the next releases are not permitted."""
        self.during: list[Callable[[], object]] = []
        """What happens between the grant of the next request and its answer."""
        link = Link(Endpoints(["http://a:1", "http://b:1"]), "default", None, lambda: self.now, SECOND)
        link.spawn = self.background.append
        opened = {"session": "1", "ttl_ms": 600_000, "log_time_ms": 1_000, "deadline_ms": 601_000}
        self.session = Session(link, "h", Answer(0, Head(201, {}), opened))
        self.stream, self.step = self.follow()

    def follow(self) -> tuple[Steps[None], Step]:
        """Begins a stream of events. Returns its steps, and the first one after its start."""
        steps = follow(self.session)
        assert isinstance(next(steps), Listen)
        return steps, steps.send(Head(200, {"content-type": "text/event-stream"}))

    def acquire(self, name: str = "a") -> HoldState:
        """Acquires a cached hold."""
        hold: HoldState = self.run(acquire(self.session, LockRequest((name,), 0, {"cached": True}), Metadata("a", "b")))
        return hold

    def settle(self) -> list[str]:
        """Performs the operations in the background. Returns all calls since the last time."""
        while self.background:
            self.run(self.background.pop(0))
        calls, self.calls = self.calls, []
        return calls

    def run(self, steps: Steps[Any]) -> Any:
        """Performs the steps of an operation."""
        value: Any = None
        while True:
            try:
                step = steps.send(value)
            except StopIteration as end:
                return end.value
            value = None
            if isinstance(step, Exchange):
                value = self._answer(step)
            else:
                assert isinstance(step, Pause)
                self.now += step.duration

    def _answer(self, step: Exchange) -> tuple[Head, bytes]:
        head, _, payload = step.request.partition(b"\r\n\r\n")
        path, body = head.split(b" ")[1].decode().rsplit("/", 1)[1], json.loads(payload)
        if path == "acquire":
            self.token += 1
            self.calls.append(f"acquire {body['lock']}")
            answer: dict[str, Any] = {"state": "granted", "token": str(self.token)}
        else:
            self.calls.append(f"{path} {body['token']}")
            answer = {"released": True}
            if self.refused:
                self.refused -= 1
                problem = {"error": "not-permitted", "detail": "a test", "advice": "give_up"}
                return Head(403, {"content-type": "application/problem+json"}), json.dumps(problem).encode()
        while self.during:
            self.during.pop()()
        return Head(200, {"content-type": "application/json"}), json.dumps(answer).encode()


@pytest.fixture
def cluster() -> Cluster:
    """A cluster of its own for each test."""
    return Cluster()


def test_only_the_first_use_is_a_request(cluster: Cluster) -> None:
    """Each use has its own hold, under one token. The end of an earlier use remains, and its functions are gone."""
    first = cluster.acquire()
    lost: list[LockLost] = []
    first.on_lost(lost.append)
    cluster.run(release(first))
    second = cluster.acquire()
    second.check()
    assert second.token == first.token == 1
    with pytest.raises(NotHeld):
        first.check()
    cluster.run(release(first))
    cluster.run(release(second))
    apply(cluster.session, "broken", {"token": "1"})
    assert cluster.settle() == ["acquire a"] and not lost
    assert cluster.acquire().token == 2


def test_another_use_at_the_same_time_is_a_request(cluster: Cluster) -> None:
    """A use takes no hold that is in use, and the hold of another lock is another one."""
    cluster.acquire()
    cluster.acquire()
    cluster.acquire("b")
    assert cluster.settle() == ["acquire a", "acquire a", "acquire b"]


@pytest.mark.parametrize("event", ["recalled", "revoke-requested"])
@pytest.mark.parametrize("when", ["before its answer", "used", "used again", "unused"])
def test_a_hold_that_others_want_is_released(cluster: Cluster, event: str, when: str) -> None:
    """An unused hold is released at once, and a used one at the end of its use. The next use is a request."""

    def wanted() -> None:
        apply(cluster.session, event, {"token": "1"})

    if when == "before its answer":
        cluster.during.append(wanted)
    hold = cluster.acquire()
    if when == "used":
        wanted()
    if when in ("used again", "unused"):
        cluster.run(release(hold))
        hold = cluster.acquire() if when == "used again" else hold
        wanted()
    assert cluster.settle() == ["acquire a"] + ["release 1"] * (when == "unused")
    cluster.run(release(hold))
    assert cluster.acquire().token == 2
    assert cluster.settle() == ["release 1"] * (when != "unused") + ["acquire a"]


@pytest.mark.parametrize("when", ["before its answer", "used", "unused"])
def test_no_hold_outlives_its_stream(cluster: Cluster, when: str) -> None:
    """A recall may have been missed while no stream reported it, although the next stream begins at once."""

    def broken() -> None:
        assert isinstance(cluster.stream.throw(NotAnswered("a test")), Listen)
        cluster.stream.send(Head(200, {"content-type": "text/event-stream"}))

    if when == "before its answer":
        cluster.during.append(broken)
    hold = cluster.acquire()
    if when == "unused":
        cluster.run(release(hold))
    if when != "before its answer":
        broken()
    cluster.run(release(hold))
    assert cluster.settle() == ["acquire a", "release 1"]
    again = cluster.acquire()
    cluster.run(release(again))
    assert cluster.acquire().token == again.token == 2, "the new stream reports a recall"


def test_a_stream_is_left_with_its_node(cluster: Cluster) -> None:
    """A node that fails to answer may report no recall: once requests go to another node, the stream follows them."""
    link = cluster.session.link
    assert isinstance(cluster.step, Next)
    link.endpoints.failed(link.endpoints.current)
    assert cluster.step.stop() is None, "no hold depends on the stream"
    cluster.run(release(cluster.acquire()))
    left = cluster.step.stop()
    assert left is not None
    assert isinstance(cluster.stream.throw(left), Pause)
    assert cluster.settle() == ["acquire a", "release 1"]


def test_a_hold_without_a_renewal_is_not_used_again(cluster: Cluster) -> None:
    """No renewal was answered for half a TTL, so the session may have ended, and the node may know of a recall."""
    cluster.run(release(cluster.acquire()))
    cluster.now += TTL // 2
    assert cluster.acquire().token == 2
    assert sorted(cluster.settle()) == ["acquire a", "acquire a", "release 1"]


def test_a_lost_hold_is_not_used_again(cluster: Cluster) -> None:
    """The end of a use of a broken hold raises, and the next use is a request. After the session no use begins."""
    hold = cluster.acquire()
    apply(cluster.session, "broken", {"token": "1"})
    with pytest.raises(LockLost):
        cluster.run(release(hold))
    again = cluster.acquire()
    assert again.token == 2
    cluster.run(release(again))
    cluster.session.end("broken", "a test")
    with pytest.raises(SessionEnded):
        cluster.acquire()


def test_a_late_end_of_an_older_use_replaces_no_newer_hold(cluster: Cluster) -> None:
    """The client has not learned yet that the hold of a use was broken when it gets the lock again."""
    older = cluster.acquire()
    cluster.run(release(cluster.acquire()))
    cluster.run(release(older))
    assert cluster.acquire().token == 2
    assert cluster.settle() == ["acquire a", "acquire a", "release 1"]


def test_a_hold_that_is_not_used_for_long_is_released(cluster: Cluster) -> None:
    """The time begins with the end of the last use."""
    hold = cluster.acquire()
    cluster.now += UNUSED_TIME_MAX
    cluster.run(release(hold))
    cluster.now += UNUSED_TIME_MAX - 1
    next(keep(cluster.session))
    assert cluster.settle() == ["acquire a"]
    cluster.now += 1
    next(keep(cluster.session))
    assert cluster.settle() == ["release 1"]


def test_a_session_keeps_no_more_holds_than_that(cluster: Cluster) -> None:
    """The longest unused one is released."""
    for number in range(UNUSED_MAX):
        cluster.run(release(cluster.acquire(str(number))))
    cluster.run(release(cluster.acquire("0")))
    assert len(cluster.settle()) == UNUSED_MAX
    cluster.run(release(cluster.acquire("last")))
    assert cluster.settle() == ["acquire last", "release 2"]


def test_a_changed_hold_is_an_ordinary_one(cluster: Cluster) -> None:
    """The cluster recalls no hold that was changed, so its use ends with its release."""
    hold = cluster.acquire()
    cluster.run(change(hold, "downgrade"))
    cluster.run(release(hold))
    assert cluster.settle() == ["acquire a", "downgrade 1", "release 1"]


def test_a_use_that_ends_twice_is_one_use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads release one hold, and in between a third one begins the next use: that use remains the only one."""
    hold = cluster.acquire()
    is_kept: Callable[[HoldState], bool] = cached._is_kept  # pyright: ignore[reportPrivateUsage]
    uses: list[HoldState] = []

    class Meanwhile:
        """The lock of the session, which another thread has first."""

        def __enter__(self) -> None:
            monkeypatch.undo()
            assert is_kept(hold)
            cluster.run(release(hold))
            uses.append(cluster.acquire())

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(cluster.session, "lock", Meanwhile())
    cluster.run(release(hold))
    assert not cluster.session.unused and len(uses) == 1
    assert cluster.acquire().token == 2


@pytest.mark.parametrize("event", ["recalled", "broken"])
def test_an_event_concerns_a_use_that_ends_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Another thread ends the use while the event is applied: the hold is not kept for another use."""
    hold = cluster.acquire()
    lock = cluster.session.lock

    class Before:
        """The lock of the session, which another thread gets as soon as it is free."""

        depth = 0

        def __enter__(self) -> None:
            lock.acquire()
            self.depth += 1

        def __exit__(self, *error: object) -> None:
            lock.release()
            self.depth -= 1
            if self.depth:
                return
            monkeypatch.undo()
            if event == "broken":
                with pytest.raises(LockLost):
                    cluster.run(release(hold))
            else:
                cluster.run(release(hold))

    monkeypatch.setattr(cluster.session, "lock", Before())
    apply(cluster.session, event, {"token": "1"})
    assert not cluster.session.unused
    assert cluster.acquire().token == 2


def test_the_log_of_a_loss_is_written_without_the_lock(cluster: Cluster) -> None:
    """A handler of the program's log may wait for another thread, which needs the lock of the session."""
    hold = cluster.acquire()
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            other = threading.Thread(target=cluster.session.watched)
            other.start()
            other.join(SOON)
            written.append("late" if other.is_alive() else "in time")

    handler, log = Handler(), logging.getLogger("lockkeeper_client")
    log.addHandler(handler)
    try:
        apply(cluster.session, "broken", {"token": "1"})
    finally:
        log.removeHandler(handler)
    assert written == ["in time"]
    with pytest.raises(LockLost):
        hold.check()


def test_a_refused_release_is_repeated(cluster: Cluster) -> None:
    """A release that a node does not permit now is repeated. The holds after it are released meanwhile."""
    for name in ("a", "b"):
        cluster.run(release(cluster.acquire(name)))
    cluster.refused = 1
    give_up(cluster.session, cluster.session.watched())
    calls = cluster.settle()
    assert sorted(set(calls)) == ["acquire a", "acquire b", "release 1", "release 2"] and len(calls) == 5
    assert calls[2] == calls[4] != calls[3]


def test_a_new_session_waits_for_its_stream() -> None:
    """The first acquire waits until a stream can report a recall, but not for long, and for no stream that fails."""
    waiting = Cluster()
    waiting.stream.close()
    waiting.session.first_stream = True
    began = waiting.now
    waiting.run(release(waiting.acquire()))
    assert SECOND <= waiting.now - began < 2 * SECOND
    assert waiting.settle() == ["acquire a", "release 1"]
    steps = follow(waiting.session)
    next(steps)
    steps.throw(NotAnswered("a test"))
    began = waiting.now
    waiting.acquire()
    assert waiting.now - began < SECOND


@pytest.mark.parametrize(
    "options", [{"shared": True}, {"owner": "o"}, {"unfair": True}, {"delay": 1}, {"at_least": 1}, {"at_most": 1}]
)
def test_options_that_a_cached_hold_cannot_have_are_refused(options: dict[str, Any]) -> None:
    """They are refused before anything is sent, by their names."""
    lk = Client("http://127.0.0.1:1")
    with pytest.raises(InvalidArgument, match=f"^{next(iter(options))}: left out"):
        lk.lock("a", cached=True, **options)
    with pytest.raises(InvalidArgument, match=r"^lock: one name"):
        lk.lock("a", "b", cached=True)
    with pytest.raises(InvalidArgument, match=r"^permits: left out .*, got 1$"):
        lk.semaphore("a", limit=2, cached=True)
    with pytest.raises(InvalidArgument, match=r"^value: left out"):
        lk.elect("a", "v", cached=True)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first stream may take long to begin."""
    monkeypatch.setattr(cached, "FIRST_STREAM_WAIT", 60 * SECOND)


def _grants(lk: Client, name: str) -> int:
    return [record["event"] for record in lk.history(name)].count("granted")


def _use(lk: Client, name: str) -> int:
    with lk.lock(name, wait=30, cached=True) as hold:
        hold.check()
        return hold.token


@pytest.mark.usefixtures("slow")
def test_many_uses_have_one_grant(nodes: Nodes) -> None:
    """From the first use of a client on, all have the same token. Its close releases the hold."""
    with nodes.client() as other:
        with nodes.client() as lk:
            assert len({_use(lk, "cached-many") for _ in range(50)}) == 1
            assert _grants(other, "cached-many") == 1
            assert [row["cached"] for row in other.show("cached-many")["holders"]] == [True]
            calls = lk.locked("cached-many", wait=30, cached=True)(lambda: _grants(other, "cached-many"))
            assert calls() == 1
        assert other.show("cached-many")["holders"] == []


@pytest.mark.usefixtures("slow")
def test_an_unused_hold_is_released_for_others(nodes: Nodes) -> None:
    """Another client gets the lock at once, also one that does not wait, and then the next use has a new token."""
    with nodes.client(ttl=600) as lk, nodes.client(ttl=600) as other:
        tokens = [_use(lk, "cached-unused")]
        # On a busy machine the release may take longer than the cluster lets a request without a wait stand.
        waits = iter((30, *[0] * 9))
        for wait in waits:
            began = time.monotonic()
            try:
                taken = other.lock("cached-unused").acquire(wait=wait)
            except NotAcquired:
                _use(lk, "cached-unused")
                continue
            with taken:
                tokens.append(taken.token)
                with pytest.raises(NotAcquired):
                    lk.lock("cached-unused", cached=True).acquire(wait=0)
            assert time.monotonic() - began < SOON
            tokens.append(_use(lk, "cached-unused"))
            if wait == 0:
                break
        assert len(tokens) == 5 and tokens == sorted(set(tokens))


def test_others_are_delayed_by_the_use_that_runs(nodes: Nodes) -> None:
    """A waiter gets the lock after the use, and before the next use of the first client, which waits behind it."""
    with nodes.client(ttl=600) as lk, nodes.client(ttl=600) as other:
        order: list[tuple[str, int]] = []
        _use(lk, "cached-used")
        with lk.lock("cached-used", cached=True, why="a test"), pytest.raises(NotAcquired) as refused:
            other.lock("cached-used").acquire(wait=0)
        assert refused.value.holder is not None

        def wait() -> None:
            with other.lock("cached-used", wait=30) as taken:
                order.append(("other", taken.token))
                await_true(lambda: other.show("cached-used")["waiters"], "the next use in the queue")

        waiting = threading.Thread(target=wait)
        with lk.lock("cached-used", cached=True) as used:
            waiting.start()
            await_true(lambda: any(row["recalled"] for row in other.show("cached-used")["holders"]), "the recall")
            with pytest.raises(NotAcquired):
                other.lock("cached-used").acquire(wait=0)
            used.check()
            order.append(("use", used.token))
        began = time.monotonic()
        order.append(("next use", _use(lk, "cached-used")))
        waiting.join()
        assert time.monotonic() - began < SOON
        assert [who for who, _ in order] == ["use", "other", "next use"]
        assert [token for _, token in order] == sorted({token for _, token in order})


def test_the_end_of_the_session_ends_its_cached_holds(nodes: Nodes) -> None:
    """An operator ends the session: the next use opens another one, and acquires."""
    with nodes.client(ttl=600) as lk, nodes.client() as other:
        first = _use(lk, "cached-end")
        (holder,) = other.show("cached-end")["holders"]
        other.call(f"sessions/{holder['session']}/end", why="a test")
        own = lk._own  # pyright: ignore[reportPrivateUsage]
        await_true(lambda: own and own.state.ended, "the end")
        assert first < _use(lk, "cached-end")


def test_a_break_ends_a_cached_hold(nodes: Nodes) -> None:
    """An operator breaks the unused hold. The next use acquires."""
    with nodes.client(ttl=600) as lk, nodes.client() as other:
        first = _use(lk, "cached-break")
        other.call("break", lock="cached-break", token=first, why="a test")
        session = lk._own.state if lk._own else None  # pyright: ignore[reportPrivateUsage]
        await_true(lambda: session and not session.unused, "the break")
        assert first < _use(lk, "cached-break")


def test_the_uses_of_threads_never_overlap(nodes: Nodes) -> None:
    """Two threads of one client, and another client: one use at a time, and the tokens never decrease."""
    uses: list[int] = []
    inside: list[int] = []

    def work(lk: Client) -> None:
        for _ in range(60):
            with lk.lock("cached-threads", wait=60, cached=True) as hold:
                inside.append(hold.token)
                assert len(inside) == 1
                time.sleep(0.001)
                uses.append(hold.token)
                inside.pop()

    with nodes.client(ttl=600) as lk, nodes.client(ttl=600) as other:
        threads = [threading.Thread(target=work, args=(client,)) for client in (lk, lk, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(uses) == 180 and uses == sorted(uses)


@pytest.mark.usefixtures("slow")
def test_tasks_use_a_cached_hold(nodes: Nodes) -> None:
    """The client of asyncio keeps and releases holds as the one for threads, and a loop of uses starves no task."""

    async def use(lk: AsyncClient) -> int:
        async with lk.lock("cached-aio", wait=30, cached=True) as hold:
            hold.check()
            return hold.token

    async def main() -> None:
        async with nodes.async_client(ttl=3) as lk, nodes.async_client() as other:
            tokens = {await use(lk) for _ in range(50)}
            assert len(tokens) == 1
            waiting = asyncio.create_task(use(other))
            began = time.monotonic()
            while not waiting.done():
                tokens.add(await use(lk))
            assert time.monotonic() - began < SOON
            assert await waiting not in tokens
            session = lk._own.state if lk._own else None  # pyright: ignore[reportPrivateUsage]
            assert session
            answered, until = session.validity.answered, time.monotonic() + SOON
            while session.validity.answered == answered:
                await use(lk)
                assert time.monotonic() < until, "the uses keep the session from its renewal"
            inside: list[int] = []

            async def work(client: AsyncClient) -> None:
                for _ in range(20):
                    async with client.lock("cached-aio", wait=30, cached=True) as hold:
                        inside.append(hold.token)
                        await asyncio.sleep(0)
                        assert len(inside) == 1
                        inside.pop()

            await asyncio.gather(work(lk), work(lk), work(other))
            last = await use(lk)
        async with nodes.async_client() as lk:
            assert last < await use(lk), "the close releases it"

    asyncio.run(main())
