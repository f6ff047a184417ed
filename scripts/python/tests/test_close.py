"""The close of clients and sessions: cancelled, interrupted, during an open, and what their holders see."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from nodes import Nodes, await_true, turns

from lockkeeper_client import AsyncClient, Client, LockLost, Unavailable, _process
from lockkeeper_client.core.clock import MILLISECOND
from lockkeeper_client.core.keep import close
from lockkeeper_client.core.session import Session, open_session
from lockkeeper_client.core.steps import Pause, Step, Steps

TTL = 600
"""No session of these tests expires: only its close frees its locks."""


def _is_free(lk: Client, *names: str) -> bool:
    return not any(lk.show(name)["holders"] for name in names)


async def _hold(lk: AsyncClient, names: list[str]) -> list[Session]:
    """Holds each lock in a session of its own. Returns the sessions."""
    opened = [await lk.session(ttl=TTL) for _ in names]
    for session, name in zip(opened, names, strict=True):
        await session.lock(name, wait=30).acquire()
    return [session.state for session in opened]


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_close_continues(nodes: Nodes, cancels: int) -> None:
    """A close is cancelled at each of its steps, also twice: all sessions are closed, and the next close waits."""
    names = ["close-a", "close-b"]

    async def cancelled_at(step: int, again: bool) -> bool:
        lk = nodes.async_client(ttl=TTL)
        opened = await _hold(lk, names)
        task = asyncio.create_task(lk.close())
        for _ in range(cancels):
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        assert all(session.ended for session in opened), "none is renewed"
        if again:
            await lk.close()
            assert not any(_process.is_open(session) for session in opened)
            assert await asyncio.to_thread(_is_free, other, *names), "the second close waits for the first one"
        return task.cancelled()

    async def main() -> None:
        again = False
        for step in turns():
            if not await cancelled_at(step, again):
                assert step > 3
                return
            again = not again

    with nodes.client() as other:
        asyncio.run(main())
        with other.lock(*names, wait=30):
            pass


def test_a_cancelled_close_of_a_session_continues(nodes: Nodes) -> None:
    """The session that a block closes is closed although its task is cancelled at the end of the block."""

    async def main() -> None:
        async with nodes.async_client() as lk:
            for step in range(1, 6):
                (state,) = await _hold(lk, ["close-session"])
                session = next(known for known in lk._opened if known.state is state)  # pyright: ignore[reportPrivateUsage]
                task = asyncio.create_task(session.close())
                for _ in range(step):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                async with lk.lock("close-session", wait=30):
                    pass

    asyncio.run(main())


def test_an_interrupted_close_continues(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the close of the first session: all are closed in the background, and none is renewed."""
    interrupted: list[object] = []

    def interrupt_first(session: Session, patience: int, *, lost: bool = False) -> Steps[None]:
        if not interrupted:
            interrupted.append(session)
            raise KeyboardInterrupt
        yield from close(session, patience, lost=lost)

    with nodes.client() as other:
        for closed in ("session", "client"):
            lk = nodes.client(ttl=TTL)
            interrupted.clear()
            with monkeypatch.context() as patched:
                patched.setattr("lockkeeper_client.core.keep.close", interrupt_first)
                first, second = lk.session(ttl=TTL), lk.session(ttl=TTL)
                first.lock("close-first", wait=30).acquire()
                second.lock("close-second", wait=30).acquire()
                with pytest.raises(KeyboardInterrupt):
                    (first if closed == "session" else lk).close()
                assert first.state.ended and (closed == "session" or second.state.ended)
                with other.lock("close-first", wait=30):
                    pass
                lk.close()
                assert not _process.is_open(first.state) and not _process.is_open(second.state)
                assert _is_free(other, "close-first", "close-second")


def test_a_close_that_is_interrupted_at_its_begin_continues(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before the session has ended: it is closed in the background all the same."""
    end = Session.end
    interrupted: list[object] = []

    def interrupt_first(session: Session, reason: str, detail: str) -> None:
        if not interrupted:
            interrupted.append(session)
            raise KeyboardInterrupt
        end(session, reason, detail)

    with nodes.client() as lk, nodes.client() as other:
        session = lk.session(ttl=TTL)
        session.lock("close-begin", wait=30).acquire()
        with monkeypatch.context() as patched:
            patched.setattr(Session, "end", interrupt_first)
            with pytest.raises(KeyboardInterrupt):
                session.close()
        with other.lock("close-begin", wait=30):
            pass
        await_true(lambda: not _process.is_open(session.state), "the answer of the close")


def _slow_open(
    is_closed: Callable[[], bool], opened: list[Session], begun: list[object]
) -> Callable[..., Steps[Session]]:
    """Opens sessions. The answer arrives only after the client was closed."""

    def slow(*arguments: Any) -> Steps[Session]:
        begun.append(arguments)
        while not is_closed():
            step: Step = Pause(10 * MILLISECOND)
            yield step
        session = yield from open_session(*arguments)
        opened.append(session)
        return session

    return slow


def test_a_session_that_opens_during_the_close_is_closed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The close of the client does not miss a session whose open was in progress, and its lock is not granted."""
    opened: list[Session] = []
    begun: list[object] = []
    errors: list[BaseException] = []
    lk = nodes.client(ttl=TTL)
    slow = _slow_open(lambda: lk._closed, opened, begun)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr("lockkeeper_client.sync.open_session", slow)

    def acquire() -> None:
        try:
            lk.lock("close-opening").acquire()
        except Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=acquire)
    thread.start()
    await_true(lambda: begun, "the open")
    lk.close()
    assert len(opened) == 1 and not _process.is_open(opened[0])
    thread.join()
    assert "closed" in str(errors[0])
    with nodes.client() as other:
        assert opened[0].id not in [row["session"] for row in other.call("sessions")["sessions"]]


def test_a_session_that_opens_during_the_close_is_closed_by_asyncio(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for the client of asyncio."""
    opened: list[Session] = []
    begun: list[object] = []

    async def main() -> None:
        lk = nodes.async_client(ttl=TTL)
        slow = _slow_open(lambda: lk._closed, opened, begun)  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr("lockkeeper_client.aio.open_session", slow)
        task = asyncio.create_task(lk.lock("close-opening").acquire())
        while not begun:
            await asyncio.sleep(0)
        await lk.close()
        assert len(opened) == 1 and not _process.is_open(opened[0])
        with pytest.raises(Unavailable, match="closed"):
            await task

    asyncio.run(main())


def test_the_close_of_a_client_is_a_loss(nodes: Nodes) -> None:
    """A client for asyncio is closed: other bodies are cancelled, `on_lost` is called once, the own body finishes."""

    async def main() -> None:
        lk = nodes.async_client(ttl=TTL)
        entered = asyncio.Event()
        lost: list[LockLost] = []

        async def body() -> None:
            async with lk.lock("close-body") as hold:
                hold.on_lost(lost.append)
                entered.set()
                await asyncio.sleep(600)

        task = asyncio.create_task(body())
        await entered.wait()
        finished = False
        with pytest.raises(LockLost):
            async with lk.lock("close-own"):
                await lk.close()
                await asyncio.sleep(0)
                finished = True
        assert finished
        with pytest.raises(LockLost):
            await task
        assert [error.reason for error in lost] == ["closed"]

    asyncio.run(main())


def test_the_close_of_a_client_for_threads_is_a_loss(nodes: Nodes) -> None:
    """The functions of its holds are called once."""
    lk = nodes.client(ttl=TTL)
    lost: list[LockLost] = []
    lk.lock("close-thread").acquire().on_lost(lost.append)
    lk.close()
    await_true(lambda: lost, "the report of the loss")
    time.sleep(0.1)
    assert [error.reason for error in lost] == ["closed"]


def test_a_loss_that_a_release_finds_is_reported(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream and no renewal has found the break: the release raises it, and calls `on_lost` once."""

    def no_stream(_: Session) -> Steps[None]:
        yield from ()

    for client in ("sync", "aio"):
        monkeypatch.setattr(f"lockkeeper_client.{client}.follow", no_stream)
    lost: list[LockLost] = []

    async def main() -> None:
        async with nodes.async_client(ttl=TTL) as lk:
            hold = await lk.lock("close-release").acquire()
            hold.on_lost(lost.append)
            await lk.call("break", lock="close-release", token=hold.token, why="a test")
            with pytest.raises(LockLost):
                await hold.release()

    with nodes.client(ttl=TTL) as lk:
        hold = lk.lock("close-release", wait=30).acquire()
        hold.on_lost(lost.append)
        lk.call("break", lock="close-release", token=hold.token, why="a test")
        with pytest.raises(LockLost):
            hold.release()
        assert [error.token for error in lost] == [hold.token]
    asyncio.run(main())
    assert len(lost) == 2
