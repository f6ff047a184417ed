"""The client for asyncio at a real cluster: calls, cancellation, and bodies that are cancelled at a loss."""

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from nodes import PATIENCE, Nodes

from lockkeeper_client import (
    AsyncClient,
    AsyncHold,
    Error,
    InvalidArgument,
    LockLost,
    NotAcquired,
    NotHeld,
    OutcomeUnknown,
    Unavailable,
)
from lockkeeper_client.core.session import open_session


async def eventually(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < end, f"not in time: {what}"
        await asyncio.sleep(0.02)


async def trace(lk: AsyncClient, lock: str) -> list[Any]:
    """Returns the holders and the waiters of a lock."""
    row = await lk.call("locks", lock=lock)
    return [*row["holders"], *row["waiters"]]


def run(nodes: Nodes, test: Callable[[AsyncClient, AsyncClient], Coroutine[Any, Any, None]]) -> None:
    """Runs a test with two clients."""

    async def main() -> None:
        async with nodes.async_client(ttl=3) as lk, nodes.async_client() as other:
            await test(lk, other)

    asyncio.run(main())


def test_each_kind_of_lock(nodes: Nodes) -> None:
    """Locks, sets, permits, elections, sessions, leases and the decorator work as those for threads."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        async with lk.lock("aio-a", wait=30, why="rebuild") as hold:
            hold.check()
            with pytest.raises(NotAcquired) as refused:
                await other.lock("aio-a").acquire(wait=0)
            assert refused.value.holder is not None and refused.value.holder.why == "rebuild"
            waiting = asyncio.create_task(other.lock("aio-a").acquire())
            await eventually(lambda: _waits(lk, "aio-a"), "a waiter")
        granted = await waiting
        assert hold.token < granted.token
        await granted.release()
        with pytest.raises(NotHeld):
            granted.check()
        async with lk.lock("aio-db", "aio-cache") as both, lk.semaphore("aio-s", limit=2):
            assert len(both.tokens) == 2
        async with lk.elect("aio-boss", value="v"):
            leader = await other.leader("aio-boss")
            assert leader is not None and leader.value == "v"
        async with lk.session(ttl=10) as session, session.lock("aio-r", shared=True) as reader:
            await reader.upgrade()
            await reader.set_value("v")
            await reader.downgrade()
        async with await lk.lease("aio-batch", 600) as lease:
            await lease.refresh(10)
            assert await other.check("aio-batch", lease.token)

        @lk.locked("aio-report:{day}", wait=0, skip=True)
        async def report(day: int) -> int:
            return day

        async with other.lock("aio-report:1"):
            assert await report(1) is None and await report(2) == 2

    run(nodes, main)


async def _waits(lk: AsyncClient, lock: str) -> bool:
    return bool((await lk.call("locks", lock=lock))["waiters"])


def test_two_tasks_exclude_each_other(nodes: Nodes) -> None:
    """A hold belongs to the object, so two tasks of one client take turns."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        inside = 0
        lock = lk.lock("aio-tasks")

        async def work() -> None:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(20)))

    run(nodes, main)


def test_a_block_may_end_in_another_task(nodes: Nodes) -> None:
    """A task ends a block that another task began, as for a fixture or a generator."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        lock = lk.lock("aio-ends")
        hold = await lock.__aenter__()
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert not await lk.check("aio-ends", hold.token)

    run(nodes, main)


def test_a_cancelled_acquire_leaves_nothing(nodes: Nodes) -> None:
    """An acquire is cancelled at each of its steps, of a free lock and of a held one; it leaves no hold and no place.

    The session of the client lives on, so it cannot be what removes them.
    """

    async def cancelled_at(lk: AsyncClient, lock: str, step: int) -> bool:
        task = asyncio.create_task(lk.lock(lock).acquire())
        for _ in range(step):
            await asyncio.sleep(0)
            if task.done():
                await (await task).release()
                return False
        task.cancel()
        try:
            await (await task).release()
        except asyncio.CancelledError:
            pass
        return True

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        await (await lk.lock("aio-cancel").acquire()).release()
        steps = 0
        while await cancelled_at(lk, "aio-cancel", steps):
            steps += 1
        # A busy machine answers within few turns of the loop.
        assert steps > 1
        await eventually(lambda: _is_free(other, "aio-cancel"), "no trace")
        async with other.lock("aio-cancel"):
            for step in range(0, 60, 3):
                await cancelled_at(lk, "aio-cancel", step)
            await eventually(lambda: _one_holder(other, "aio-cancel"), "no waiter")
        for step in range(steps + 5):
            task = asyncio.create_task(lk.lease("aio-cancel", 600))
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
        await eventually(lambda: _is_free(other, "aio-cancel"), "no lease")

    run(nodes, main)


async def _is_free(lk: AsyncClient, lock: str) -> bool:
    return not await trace(lk, lock)


async def _one_holder(lk: AsyncClient, lock: str) -> bool:
    return len(await trace(lk, lock)) == 1


def test_a_cancelled_release_continues(nodes: Nodes) -> None:
    """A release is cancelled at each of its steps, and the lock is free nevertheless."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        for step in range(12):
            hold = await lk.lock("aio-release", wait=30).acquire()
            task = asyncio.create_task(hold.release())
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if step:
                await eventually(lambda: _is_free(other, "aio-release"), f"free after step {step}")
            else:
                # The release did not begin.
                await hold.release()

    run(nodes, main)


def test_a_cancelled_body_releases_and_stays_cancelled(nodes: Nodes) -> None:
    """The cancellation of a body by its program is not changed, and the lock is free when it arrives."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        entered = asyncio.Event()

        async def body() -> None:
            async with lk.lock("aio-body"):
                entered.set()
                await asyncio.sleep(600)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _is_free(other, "aio-body")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, lk.lock("aio-body"):
                limit.reschedule(asyncio.get_running_loop().time())
                await asyncio.sleep(600)
        assert await _is_free(other, "aio-body")

    run(nodes, main)


async def _break(other: AsyncClient, hold: AsyncHold, lock: str) -> None:
    await other.call("break", lock=lock, token=hold.token, why="a test")


def test_a_loss_cancels_the_body(nodes: Nodes) -> None:
    """The body is cancelled and the block raises LockLost; afterwards the task is not cancelled."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        tokens: list[int] = []
        with pytest.raises(LockLost) as lost:
            async with lk.lock("aio-loss") as hold:
                tokens.append(hold.token)
                await _break(other, hold, "aio-loss")
                await asyncio.sleep(600)
        assert tokens == [lost.value.token]
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)
        # A body that ends at the same time, and one that turns the cancellation into another error.
        with pytest.raises(LockLost):
            async with lk.lock("aio-loss") as hold:
                hold._cancel(task)  # pyright: ignore[reportPrivateUsage]
                hold._state.lose("broken", "a test")  # pyright: ignore[reportPrivateUsage]
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        with pytest.raises(KeyError) as kept:
            async with lk.lock("aio-loss-2") as hold:
                try:
                    await _break(other, hold, "aio-loss-2")
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    raise KeyError("the error of the body") from None
        assert any("lost" in note for note in kept.value.__notes__)
        await asyncio.sleep(0)
        # A block that begins after the loss.
        hold = await lk.lock("aio-loss-3").acquire()
        hold._state.lose("broken", "a test")  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(LockLost):
            async with hold:
                await asyncio.sleep(600)
        assert task.cancelling() == 0

    run(nodes, main)


def test_a_loss_and_a_cancellation_together(nodes: Nodes) -> None:
    """A task that its program cancels while its lock is lost remains cancelled. The rest of its set is free."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        entered: asyncio.Future[AsyncHold] = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with lk.lock("aio-both", "aio-rest") as hold:
                entered.set_result(hold)
                await asyncio.sleep(600)

        task = asyncio.create_task(body())
        hold = await entered
        hold._state.lose("broken", "a test")  # pyright: ignore[reportPrivateUsage]
        hold._cancel_body(LockLost("a test"))  # pyright: ignore[reportPrivateUsage]
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await task
        assert await _is_free(other, "aio-both") and await _is_free(other, "aio-rest")
        assert any("lost" in note for note in kept.value.__notes__)

    run(nodes, main)


def test_an_outage_cancels_the_body_at_the_own_deadline(own_nodes: Nodes) -> None:
    """Without an answer of any node the body is cancelled once the session may have ended, and not earlier."""

    async def main() -> None:
        lk = own_nodes.async_client(ttl=3, request_timeout=2)
        with pytest.raises(LockLost) as lost:
            async with lk.lock("a") as hold:
                for node in (1, 2, 3):
                    own_nodes.signal(node, signal.SIGSTOP)
                try:
                    await asyncio.sleep(600)
                finally:
                    assert hold.lost is not None
        assert lost.value.reason == "expired"
        for node in (1, 2, 3):
            own_nodes.signal(node, signal.SIGCONT)
        await lk.close()

    asyncio.run(main())


def test_a_blocked_loop_cancels_late(nodes: Nodes) -> None:
    """A loop that is blocked beyond the end cancels the body late; the check finds the loss at once."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        with pytest.raises(LockLost):
            async with lk.lock("aio-blocked") as hold:
                time.sleep(4)
                with pytest.raises(LockLost):
                    hold.check()
                await asyncio.sleep(600)

    run(nodes, main)


def test_a_callback_is_no_coroutine_function(nodes: Nodes) -> None:
    """A coroutine function is refused at once, because nothing would await its calls."""

    async def callback(*_: object) -> None:
        raise AssertionError("called")

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        async with lk.lock("aio-callback") as hold:
            for register in (hold.on_lost, hold.on_asked):
                with pytest.raises(InvalidArgument, match="coroutine function"):
                    register(callback)

    run(nodes, main)


def test_tasks_share_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that need the session during an outage share its error, in place of one outage after another."""
    attempts: list[object] = []

    def counted(*arguments: Any) -> object:
        attempts.append(arguments)
        return open_session(*arguments)

    monkeypatch.setattr("lockkeeper_client.aio.open_session", counted)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}"
            async with AsyncClient(address, request_timeout=0.2) as lk:
                tasks = (lk.lock(f"aio-{number}").acquire() for number in range(10))
                errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, (OutcomeUnknown, Unavailable)) for error in errors), errors
        assert len({id(error) for error in errors}) == len(errors), "each task has its own exception"

    asyncio.run(main())
    # The tasks that began during the first attempt wait for the second one.
    assert len(attempts) <= 2


def test_a_closed_client_ends_its_waits(nodes: Nodes) -> None:
    """The end of a client ends the waits of its other tasks with an error."""

    async def main(lk: AsyncClient, other: AsyncClient) -> None:
        async with other.lock("aio-close"):
            task = asyncio.create_task(lk.lock("aio-close").acquire())
            await eventually(lambda: _waits(other, "aio-close"), "a waiter")
            await lk.close()
            with pytest.raises(Error):
                await task
            assert len(await trace(other, "aio-close")) == 1

    run(nodes, main)
