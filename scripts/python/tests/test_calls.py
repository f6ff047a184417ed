"""The client for threads at a real cluster: each kind of lock and each error."""

import asyncio
import functools
import inspect
import json
import pickle
import threading
import urllib.request
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, Self

import pytest
from nodes import Nodes, await_true

import lockkeeper_client
from lockkeeper_client import (
    AlreadyHeld,
    AsyncClient,
    Client,
    Deadlock,
    Error,
    InvalidArgument,
    KindMismatch,
    LimitMismatch,
    LimitUnknown,
    LockLost,
    NotAcquired,
    NotHeld,
    Unavailable,
)
from lockkeeper_client.core.errors import CLASSES, error_of


def test_a_lock_excludes_and_is_released(nodes: Nodes) -> None:
    """A holder excludes others, who see who holds the lock; the release lets the next one in with a larger token."""
    with nodes.client() as lk:
        with lk.lock("calls-a", wait=30, why="rebuild") as hold:
            hold.check()
            assert 0 < hold.valid_for <= 10
            with pytest.raises(NotAcquired) as refused:
                lk.lock("calls-a").acquire(wait=0)
            assert refused.value.holder is not None
            assert (refused.value.holder.why, refused.value.holder.token) == ("rebuild", hold.token)
            assert refused.value.holder.held >= 0
        with pytest.raises(NotHeld):
            hold.check()
        assert hold.valid_for == 0
        with lk.lock("calls-a") as second:
            assert hold.token < second.token
            assert lk.check("calls-a", second.token)
            assert not lk.check("calls-a", hold.token)


def test_a_waiter_gets_the_lock_after_its_release(nodes: Nodes) -> None:
    """A waiter of another thread is granted as soon as the holder releases."""
    with nodes.client() as lk:
        hold = lk.lock("calls-wait").acquire()
        tokens: list[int] = []

        def wait() -> None:
            with lk.lock("calls-wait", wait=timedelta(seconds=60)) as got:
                tokens.append(got.token)

        thread = threading.Thread(target=wait)
        thread.start()
        await_true(lambda: lk.call("locks", lock="calls-wait")["waiters"], "a waiter")
        hold.release()
        thread.join()
        assert tokens[0] > hold.token


def test_the_end_of_a_wait_leaves_nothing(nodes: Nodes) -> None:
    """A wait that is over leaves no place, and names the holder."""
    with nodes.client() as lk, lk.lock("calls-over") as hold:
        with pytest.raises(NotAcquired) as over:
            lk.lock("calls-over", wait=0.2).acquire()
        assert over.value.holder is not None and over.value.holder.token == hold.token
        assert lk.call("locks", lock="calls-over")["waiters"] == []


def test_sets_shared_permits_and_elections(nodes: Nodes) -> None:
    """Sets are granted together, readers share, permits are counted, and a leader has a value."""
    with nodes.client() as lk, nodes.client() as other:
        with lk.lock("calls-db", "calls-cache") as both:
            assert sorted(both.tokens) == ["calls-cache", "calls-db"]
            with pytest.raises(InvalidArgument):
                _ = both.token
            with pytest.raises(NotAcquired):
                other.lock("calls-cache").acquire(wait=0)
        with other.lock("calls-cache", wait=0), lk.lock("calls-db", wait=0):
            pass
        with lk.lock("calls-config", shared=True) as first, other.lock("calls-config", shared=True, wait=0):
            with pytest.raises(Error):
                first.upgrade()
        with lk.lock("calls-config", shared=True) as reader:
            before = reader.token
            reader.upgrade(wait=5)
            assert before < reader.token
            reader.set_value("v")
            assert lk.call("locks", lock="calls-config")["value"] == "v"
            reader.set_value(None)
            reader.downgrade()
        with pytest.raises(LimitUnknown):
            lk.semaphore("calls-builders", wait=0).acquire()
        with lk.semaphore("calls-builders", permits=2, limit=2), pytest.raises(NotAcquired):
            other.semaphore("calls-builders", limit=2, wait=0).acquire()
        with lk.elect("calls-boss", value="10.0.0.7") as term:
            leader = other.leader("calls-boss")
            assert leader is not None and (leader.value, leader.token) == ("10.0.0.7", term.token)
        assert other.leader("calls-boss") is None


def test_the_rest_of_a_lost_set_is_given_back(nodes: Nodes) -> None:
    """After the block of a set that lost one lock, the other locks are free although the session lives."""
    with nodes.client() as lk, nodes.client() as other:
        with pytest.raises(LockLost), lk.lock("calls-s1", "calls-s2", "calls-s3") as several:
            other.call("break", lock="calls-s2", token=several.tokens["calls-s2"], why="a test")
            await_true(lambda: several.lost, "the loss")
            with pytest.raises(NotAcquired):
                other.lock("calls-s3").acquire(wait=0)
        other.lock("calls-s1", "calls-s2", "calls-s3").acquire(wait=0).release()
        assert lk.lock("calls-s1").acquire(wait=0).valid_for > 0


def test_a_child_that_waits_for_its_parent_is_a_deadlock(nodes: Nodes) -> None:
    """The lock of a parent is held until the child has finished, so the child's wait for it would never end."""
    with nodes.client() as lk, lk.session() as outer, lk.session() as inner:
        outer.lock("calls-parent", owner="parent").acquire()
        with pytest.raises(Deadlock):
            inner.lock("calls-parent", owner="child", parent=(outer.id, "parent")).acquire()
        with inner.lock("calls-child", owner="child", parent=(outer.id, "parent"), wait=0):
            pass


def test_reentry_counts_the_holds_of_an_owner(nodes: Nodes) -> None:
    """An owner that counts holds the lock until its last hold is released."""
    with nodes.client() as lk, lk.session(ttl=10) as session, nodes.client() as other:
        lock = session.lock("calls-count", owner="job-7", reentry="count")
        with lock as outer:
            with lock as inner:
                assert inner.token == outer.token
            with pytest.raises(NotAcquired):
                other.lock("calls-count").acquire(wait=0)
            with pytest.raises(AlreadyHeld):
                session.lock("calls-count", owner="job-7").acquire()
        other.lock("calls-count").acquire(wait=0).release()


def test_a_deadlock_is_refused_with_its_cycle(nodes: Nodes) -> None:
    """The request that would close a cycle of owners is refused, with the cycle."""
    with nodes.client() as lk, lk.session() as one, lk.session() as two:
        one.lock("calls-x", owner="1").acquire()
        two.lock("calls-y", owner="2").acquire()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                two.lock("calls-x", owner="2").acquire()
            except Error as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        await_true(lambda: lk.call("locks", lock="calls-x")["waiters"], "a waiter")
        with pytest.raises(Deadlock) as refused:
            one.lock("calls-y", owner="1").acquire()
        assert len(refused.value.cycle) == 2
        two.close()
        thread.join()
        assert len(errors) == 1


def test_a_lease_lives_without_its_client(nodes: Nodes) -> None:
    """A lease outlives the client, is refreshed, and excludes until its release."""
    with nodes.client() as lk:
        lease = lk.lease("calls-batch", duration=600, wait=60)
        assert 590 < lease.valid_for < 600
    with nodes.client() as other:
        with pytest.raises(NotAcquired):
            other.lease("calls-batch", 10)
        lease.refresh(20)
        assert 19 < lease.valid_for < 20
        lease.release()
        lease.release()
        with other.lease("calls-batch", 10) as second:
            assert lease.token < second.token
            with pytest.raises(NotAcquired):
                other.lease("calls-batch", 10, wait=0.2)
            assert other.call("locks", lock="calls-batch")["waiters"] == []
        with pytest.raises(NotHeld):
            lease.check()


def test_a_lease_that_is_over_is_lost(nodes: Nodes) -> None:
    """A lease is lost before another client may have it."""
    with nodes.client() as lk:
        lease = lk.lease("calls-short", duration=0.3)
        with lk.lock("calls-short", wait=30):
            assert lease.lost is not None and lease.lost.reason == "expired"
        with pytest.raises(LockLost):
            lease.refresh()


def test_the_decorator_names_the_lock_by_its_arguments(nodes: Nodes) -> None:
    """The lock of a call has the name of its argument; with `skip` a busy lock returns None."""
    with nodes.client() as lk:

        @lk.locked("calls-report:{day}", wait=0, skip=True)
        def report(day: int) -> str:
            """Reports."""
            return str(lk.call("locks", lock=f"calls-report:{day}")["holders"][0]["token"])

        with lk.lock("calls-report:1"):
            assert report(1) is None
            assert report(day=2) is not None
        assert report.__doc__ == "Reports."


def test_the_decorator_refuses_functions_that_run_later(nodes: Nodes) -> None:
    """The body of a generator and of a coroutine function would run without the lock."""

    def rows() -> Iterator[int]:
        yield 1

    async def report() -> None: ...

    with nodes.client() as lk:
        for function in (rows, report):
            with pytest.raises(InvalidArgument, match=function.__name__):
                lk.locked("calls-later")(function)


@pytest.mark.parametrize("name", ["report:{dy}", "report:{}", "report:{0}", "{day:{width}}", "report:{", "report:}"])
def test_the_decorator_refuses_a_name_that_no_call_can_fill(name: str) -> None:
    """A misspelt argument is found when the function is decorated, and not at its first call."""

    def report(day: int) -> None: ...

    async def later(day: int) -> None: ...

    with Client("http://127.0.0.1:1") as lk:
        with pytest.raises(InvalidArgument, match=r"^locked: .*report"):
            lk.locked(name)(report)
        lk.locked("report:{day:>{day}}:{day.real}")(report)
    with pytest.raises(InvalidArgument, match=r"^locked: "):
        AsyncClient("http://127.0.0.1:1").locked(name)(later)


def test_the_decorator_refuses_what_it_cannot_call() -> None:
    """A decorator without parentheses, and an object that is no function, are refused."""

    def report() -> None: ...

    lk: Any = Client("http://127.0.0.1:1")
    aio: Any = AsyncClient("http://127.0.0.1:1")
    for client in (lk, aio):
        with pytest.raises(InvalidArgument, match="a name such as"):
            client.locked(report)
        with pytest.raises(InvalidArgument, match="a function with a signature"):
            client.locked("a")(None)
    lk.close()


class _Free:
    """A lock that is free."""

    held = False

    def acquire(self) -> Self:
        return self

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *error: object) -> None:
        self.held = False


def test_the_decorator_refuses_results_that_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of what a plain wrapper returns would run after the release: it is closed, and the call fails.

    The lock is released, and the result of a plain function is returned.
    """
    lock, begun = _Free(), list[Coroutine[Any, Any, None]]()

    def free(name: str, **_: object) -> _Free:
        return lock

    async def report(day: int) -> None: ...

    def wrapper(day: int) -> Any:
        begun.append(report(day))
        return begun[-1]

    class Report:
        async def __call__(self, day: int) -> None:
            await report(day)

    class Later:
        def __await__(self) -> Iterator[None]:
            yield

    def later(day: int) -> Later:
        return Later()

    functions: list[Any] = [wrapper, functools.partial(wrapper), Report(), later]
    with Client("http://127.0.0.1:1") as lk:
        monkeypatch.setattr(lk, "lock", free)
        for function in functions:
            with pytest.raises(InvalidArgument, match="use AsyncClient"):
                lk.locked("report:{day}")(function)(4)
            assert not lock.held
        plain: Any = abs
        assert lk.locked("report")(plain)(-4) == 4
    assert [inspect.getcoroutinestate(one) for one in begun] == [inspect.CORO_CLOSED] * 2


class _Granted:
    """A lock for asyncio that is free."""

    held = False

    async def acquire(self) -> Self:
        return self

    async def __aenter__(self) -> None:
        self.held = True

    async def __aexit__(self, *error: object) -> None:
        self.held = False


def test_the_decorator_runs_all_that_can_be_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine function, one under another decorator, and an object with such a call run under the lock.

    The result of a plain function is refused, and not returned as if all of it had run.
    """
    lock, aio = _Granted(), AsyncClient("http://127.0.0.1:1")

    def free(name: str, **_: object) -> _Granted:
        return lock

    monkeypatch.setattr(aio, "lock", free)

    async def report(day: int) -> tuple[int, bool]:
        return day, lock.held

    @functools.wraps(report)
    def logged(day: int) -> Any:
        return report(day)

    class Report:
        async def __call__(self, day: int) -> tuple[int, bool]:
            return await report(day)

    functions: list[Any] = [report, logged, functools.partial(report), Report()]

    async def main() -> None:
        for function in functions:
            assert await aio.locked("report:{day}")(function)(day=4) == (4, True)
        plain: Any = len
        with pytest.raises(InvalidArgument, match="use Client"):
            await aio.locked("report")(plain)("day")
        assert not lock.held

    asyncio.run(main())


def test_a_block_may_end_in_another_thread(nodes: Nodes) -> None:
    """A thread ends a block that another thread began, as for a generator that it closes."""
    with nodes.client() as lk:
        lock = lk.lock("calls-threads")
        hold = lock.__enter__()
        ends = threading.Thread(target=lock.__exit__, args=(None, None, None))
        ends.start()
        ends.join()
        assert not lk.check("calls-threads", hold.token)


def test_a_longest_time_ends_the_hold_before_the_next_one(nodes: Nodes) -> None:
    """A hold with `at_most` is lost before another client gets the lock."""
    with nodes.client() as lk, nodes.client() as other:
        lost: list[LockLost] = []
        hold = lk.lock("calls-most", at_most=0.5).acquire()
        hold.on_lost(lost.append)
        assert hold.valid_for <= 0.5
        with other.lock("calls-most", wait=30):
            assert hold.lost is not None and hold.lost.reason == "time over"
        await_true(lambda: lost, "the report of the loss")
        assert lost[0].token == hold.token


def test_wrong_arguments_name_the_field(nodes: Nodes) -> None:
    """Errors name the field and the bound, also those that the client finds."""
    with nodes.client() as lk:
        with pytest.raises(InvalidArgument, match="lock"):
            lk.lock()
        with pytest.raises(InvalidArgument, match="wait"):
            lk.lock("a", wait=-1)
        with pytest.raises(InvalidArgument, match="owner"):
            lk.lock("a", reentry="count")
        with pytest.raises(InvalidArgument, match="lock"):
            lk.lock("\n").acquire()
        with pytest.raises(ValueError):
            lk.lease("calls-long", duration=10 * 86_400)
        lk.semaphore("calls-kind", limit=2).acquire()
        with pytest.raises(KindMismatch):
            lk.lock("calls-kind").acquire()
        with pytest.raises(LimitMismatch):
            lk.semaphore("calls-kind", limit=3).acquire()
    with pytest.raises(InvalidArgument, match="endpoints"):
        Client("ftp://a:1")
    with pytest.raises(InvalidArgument, match="namespace"):
        Client(namespace="A")
    with pytest.raises(Unavailable, match="closed"):
        lk.lock("calls-closed").acquire()


def test_options_that_do_not_exist_are_refused() -> None:
    """A misspelt option is never dropped, and a text is no duration."""
    with Client("http://127.0.0.1:1") as lk:
        lock: Any = lk.lock
        makers: tuple[Any, ...] = (lk.semaphore, lk.elect)
        for options in ({"mode": "shared"}, {"limit": 3}, {"timeout": 3}, {"Wait": 0}):
            (name,) = options
            with pytest.raises(InvalidArgument, match=f"^{name}: .*shared"):
                lock("a", **options)
        for make in makers:
            with pytest.raises(InvalidArgument, match=r"^mode: "):
                make("a", mode="shared")
        for name in ("wait", "at_least", "at_most", "delay"):
            with pytest.raises(InvalidArgument, match=f"^{name}: seconds .* got '10s'"):
                lock("a", **{name: "10s"})
        session: Any = lk.session
        with pytest.raises(InvalidArgument, match=r"^ttl: "):
            session(ttl="10s")


def test_each_word_of_the_table_has_a_class(nodes: Nodes) -> None:
    """The table of errors and the classes have the same words, and each class is public and can be pickled."""
    with urllib.request.urlopen(f"{nodes.http[0]}/v1/errors") as answer:
        rows = json.load(answer)["errors"]
    assert {row["error"] for row in rows} == set(CLASSES)
    for row in rows:
        error = error_of({**row, "detail": "why"})
        assert type(error) is CLASSES[row["error"]] and (error.word, error.advice) == (row["error"], row["advice"])
        assert type(error).__name__ in lockkeeper_client.__all__
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and copy.problem == error.problem
    assert isinstance(error_of({"error": "new", "advice": "retry"}), Unavailable)


def test_no_repr_shows_a_handle(nodes: Nodes) -> None:
    """The texts of objects contain no secret."""
    with nodes.client() as lk, lk.session() as session, session.lock("calls-repr") as hold:
        lease = lk.lease("calls-repr-lease", 10)
        texts = [repr(lk), repr(session), repr(hold), repr(lease), str(hold.lost)]
        assert not any(session.state.handle in text or lease.handle in text for text in texts)
