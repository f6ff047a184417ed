"""Forks, exits, kills and stops of the process that holds a lock."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import _process
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Steps

SOURCE = str(Path(__file__).parent.parent / "src")
_started: "list[subprocess.Popen[str]]" = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Kills the programs of a test at its end."""
    yield
    while _started:
        with _started.pop() as program:
            program.kill()


def _program(nodes: Nodes | None, text: str) -> "subprocess.Popen[str]":
    """Starts a program in another process. It has `lk`, a client of the cluster with a TTL of 3 s."""
    head = "from lockkeeper_client import *\nimport os, time, sys\n"
    if nodes is not None:
        head += f"lk = Client({nodes.http!r}, ttl=3)\n"
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", head + textwrap.dedent(text)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _started.append(program)
    return program


def _line(program: "subprocess.Popen[str]") -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_the_child_of_a_fork_has_lost_the_holds_and_releases_nothing(nodes: Nodes) -> None:
    """The parent keeps its hold. In the child it is lost, its release sends nothing, and a new lock works."""
    program = _program(
        nodes,
        """
        with lk.lock("process-fork") as hold:
            child = os.fork()
            if child == 0:
                print(hold.lost.reason)
                try:
                    hold.release()
                except LockLost as lost:
                    print(lost.reason)
                with lk.lock("process-child", wait=0) as own:
                    print(own.token > hold.token)
                lk.close()
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(4)
            hold.check()
            print(lk.check("process-fork", hold.token))
        print(lk.call("locks", lock="process-fork")["holders"])
        """,
    )
    out, _ = program.communicate(timeout=60)
    assert out.split("\n")[:5] == ["forked", "forked", "True", "True", "[]"]
    assert program.returncode == 0


def test_the_child_of_a_fork_uses_no_cached_hold_of_its_parent(nodes: Nodes) -> None:
    """The parent releases its unused hold for the child, which gets another token."""
    program = _program(
        nodes,
        """
        from lockkeeper_client.core import cached

        # On a busy machine the first stream may take long to begin.
        cached.FIRST_STREAM_WAIT *= 60

        def use():
            with lk.lock("process-cached", wait=30, cached=True) as hold:
                return hold.token

        first = use()
        print(use() == first)
        child = os.fork()
        if child == 0:
            print(first < use(), flush=True)
            lk.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(first < use())
        """,
    )
    out, _ = program.communicate(timeout=60)
    assert out.split() == ["True"] * 3


def test_the_child_of_a_fork_exits_without_an_effect(nodes: Nodes) -> None:
    """A child that leaves the `with` block and exits normally closes nothing of its parent."""
    program = _program(
        nodes,
        """
        session = lk.session(ttl=3)
        hold = session.lock("process-exit-child").acquire()
        child = os.fork()
        if child == 0:
            session.close()
            sys.exit(0)
        os.waitpid(child, 0)
        print(lk.check("process-exit-child", hold.token))
        """,
    )
    out, _ = program.communicate(timeout=60)
    assert out.strip() == "True"


def test_multiprocessing_workers_exclude_each_other(nodes: Nodes) -> None:
    """Workers that inherit the client by fork take the lock in turn."""
    program = _program(
        nodes,
        """
        import multiprocessing
        def work(number):
            with lk.lock("process-pool", wait=60) as hold:
                open(sys.argv[1], "x").close()
                os.unlink(sys.argv[1])
                return hold.token
        lk.lock("process-pool").acquire().release()
        sys.argv.append(f"/tmp/lockkeeper-pool-{os.getpid()}")
        with multiprocessing.get_context("fork").Pool(4) as pool:
            tokens = pool.map(work, range(40), chunksize=1)
        print(len(set(tokens)))
        """,
    )
    out, _ = program.communicate(timeout=60)
    assert out.strip() == "40"


def test_the_exit_of_the_interpreter_closes_the_sessions(nodes: Nodes) -> None:
    """A program that ends without a release frees its locks at once: its session is closed, and does not expire."""
    program = _program(
        nodes,
        f"""
        lk = Client({nodes.http!r}, ttl=600)
        hold = lk.lock("process-exit").acquire()
        print(hold.token)
        """,
    )
    token = int(_line(program))
    assert program.wait(60) == 0
    with nodes.client() as other:
        with other.lock("process-exit", wait=30) as hold:
            assert token < hold.token
        events = [record["event"] for record in other.call("history", lock="process-exit")["records"]]
        assert "released" in events and "expired" not in events, events


def test_an_exit_without_nodes_is_not_delayed(own_nodes: Nodes) -> None:
    """A program that ends while no node answers ends within seconds."""
    program = _program(own_nodes, 'print(lk.lock("a").acquire().token)\nsys.stdin.readline()')
    _line(program)
    for node in (1, 2, 3):
        own_nodes.signal(node, signal.SIGSTOP)
    program.communicate("\n", timeout=10)
    for node in (1, 2, 3):
        own_nodes.signal(node, signal.SIGCONT)


def test_an_exit_with_asyncio_closes_the_session(nodes: Nodes) -> None:
    """A loop that ends without closing its client frees its locks, too."""
    program = _program(
        nodes,
        f"""
        import asyncio
        async def main():
            hold = await AsyncClient({nodes.http!r}, ttl=600).lock("process-aio").acquire()
            print(hold.token)
        asyncio.run(main())
        """,
    )
    assert int(_line(program)) > 0
    assert program.wait(60) == 0
    with nodes.client() as other, other.lock("process-aio", wait=30):
        pass


def test_a_killed_holder_frees_the_lock_within_its_ttl(nodes: Nodes) -> None:
    """The session of a killed process ends, and the next client gets the lock."""
    program = _program(nodes, 'hold = lk.lock("process-kill").acquire()\nprint(hold.token)\ntime.sleep(600)')
    token = int(_line(program))
    program.kill()
    program.wait()
    with nodes.client() as other, other.lock("process-kill", wait=30) as hold:
        assert token < hold.token


def test_a_stopped_holder_finds_its_loss_before_its_next_step(nodes: Nodes) -> None:
    """A process that was stopped beyond its end finds the loss at its next check, although no thread of it ran."""
    program = _program(
        nodes,
        """
        with lk.lock("process-stop") as hold:
            print(hold.token)
            sys.stdin.readline()
            try:
                hold.check()
            except LockLost as lost:
                print(lost.reason)
        """,
    )
    token = int(_line(program))
    program.send_signal(signal.SIGSTOP)
    with nodes.client() as other, other.lock("process-stop", wait=30) as hold:
        assert token < hold.token
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        program.send_signal(signal.SIGCONT)
        assert _line(program) == "expired"
    assert program.wait(60) == 1, "the end of the block raises the loss"


def test_ctrl_c_withdraws_a_wait(nodes: Nodes) -> None:
    """A wait that Ctrl-C ends leaves no place in the queue, although the program and its session continue."""
    with nodes.client() as other, other.lock("process-int") as hold:
        program = _program(
            nodes,
            """
            try:
                lk.lock("process-int").acquire()
            except KeyboardInterrupt:
                print("interrupted")
                sys.stdin.readline()
            """,
        )
        await_true(lambda: other.call("locks", lock="process-int")["waiters"], "a waiter")
        program.send_signal(signal.SIGINT)
        assert _line(program) == "interrupted"
        await_true(lambda: not other.call("locks", lock="process-int")["waiters"], "no waiter")
        assert program.poll() is None
        hold.check()
        program.communicate("\n", timeout=60)


def test_a_blocked_interpreter_finds_its_loss(nodes: Nodes) -> None:
    """While the lock of the interpreter is held, no thread renews; the next check finds the loss."""
    program = _program(
        nodes,
        """
        import ctypes
        with lk.lock("process-gil") as hold:
            print(hold.token)
            ctypes.PyDLL(None).sleep(5)
            print(hold.lost.reason)
            sys.stdout.flush()
            os._exit(0)
        """,
    )
    begun = time.monotonic()
    token = int(_line(program))
    assert _line(program) == "expired"
    assert time.monotonic() - begun < 60
    with nodes.client() as other, other.lock("process-gil", wait=30) as hold:
        assert token < hold.token
    program.communicate(timeout=60)


def test_a_cancelled_close_is_repeated_at_the_exit(nodes: Nodes) -> None:
    """A close is cancelled at each of its steps, and the interpreter exits: the sessions are closed all the same."""
    program = _program(
        nodes,
        f"""
        import asyncio
        async def main(step):
            lk = AsyncClient({nodes.http!r}, ttl=600)
            await lk.lock(f"process-close-{{step}}").acquire()
            await (await lk.session(ttl=600)).lock(f"process-close-2-{{step}}").acquire()
            task = asyncio.create_task(lk.close())
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
        for step in range(6):
            asyncio.run(main(step))
        """,
    )
    assert program.wait(60) == 0
    names = [f"process-close-{step}" for step in range(6)] + [f"process-close-2-{step}" for step in range(6)]
    with nodes.client() as other, other.lock(*names, wait=30):
        pass


def test_a_handler_of_signals_closes_a_client_that_opens_its_session(nodes: Nodes) -> None:
    """No node answers the open of the session. A handler interrupts it, closes the client and returns."""
    program = _program(
        nodes,
        """
        import signal, socket
        silent = socket.create_server(("127.0.0.1", 0))
        lk = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", request_timeout=2)
        def close(*_):
            lk.close()
            print("closed")
        signal.signal(signal.SIGALRM, close)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            lk.lock("a").acquire()
        except (Unavailable, OutcomeUnknown):
            print("ended")
        """,
    )
    assert program.communicate(timeout=60)[0].split() == ["closed", "ended"]


def test_the_child_of_a_fork_has_no_watch(nodes: Nodes) -> None:
    """A thread of the parent iterates a watch: in the child the watch raises an error, and the close returns."""
    program = _program(
        nodes,
        """
        import threading
        watch, seen = lk.watch("process-watch"), []
        threading.Thread(target=lambda: seen.extend(watch), daemon=True).start()
        time.sleep(0.5)
        child = os.fork()
        if child == 0:
            try:
                next(watch)
            except Unavailable as error:
                print("parent" in str(error))
            lk.close()
            print("closed")
            os._exit(0)
        os.waitpid(child, 0)
        with lk.lock("process-watch"):
            while not any(event["lock"] == "process-watch" for event in seen):
                time.sleep(0.02)
        print("seen")
        """,
    )
    assert program.communicate(timeout=60)[0].split() == ["True", "closed", "seen"]


def test_the_child_of_a_fork_has_no_watch_of_asyncio(nodes: Nodes) -> None:
    """A watch of asyncio raises an error in the child, whose close does not disturb the loop of the parent."""
    program = _program(
        nodes,
        f"""
        import asyncio
        async def in_child(aio, watch):
            try:
                await anext(watch)
            except Unavailable as error:
                print("parent" in str(error))
            await aio.close()
            print("closed")
        async def main():
            aio = AsyncClient({nodes.http!r})
            watch = await aio.watch("process-watch-aio")
            first = asyncio.create_task(anext(watch))
            await asyncio.sleep(0.5)
            child = os.fork()
            if child == 0:
                asyncio.run(in_child(aio, watch))
                os._exit(0)
            os.waitpid(child, 0)
            async with aio.lock("process-watch-aio"):
                event = await first
                while event["lock"] != "process-watch-aio":
                    event = await anext(watch)
            print("seen")
            await aio.close()
        asyncio.run(main())
        """,
    )
    assert program.communicate(timeout=60)[0].split() == ["True", "closed", "seen"]


def test_a_fork_between_two_events_does_not_disturb_the_parent() -> None:
    """A watch of asyncio and an idle connection wait while the parent forks: both still work, without a reconnection.

    The program is the client and its node at once.
    """
    program = _program(
        None,
        """
        import asyncio
        connections, streams = [], []
        async def node(reader, writer):
            connections.append(writer)
            while b"/watch?" not in await reader.readuntil(b"\\r\\n\\r\\n"):
                writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/json\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n\\r\\n" + event(1))
            streams.append(writer)
        def event(number):
            return b'data: {"position": "%d.0", "cluster_id": "c"}\\n\\n' % number
        async def main():
            server = await asyncio.start_server(node, "127.0.0.1", 0)
            aio = AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await aio.call("locks")
            watch = await aio.watch(after="0.0")
            print((await anext(watch))["position"])
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            streams[0].write(event(2))
            print((await asyncio.wait_for(anext(watch), 30))["position"])
            await aio.call("locks")
            print(len(connections))
            sys.stdout.flush()
            os._exit(0)
        asyncio.run(main())
        """,
    )
    assert program.communicate(timeout=60)[0].split() == ["1.0", "2.0", "2"]


def _session(number: int, clock: Callable[[], int]) -> Session:
    link = Link(Endpoints(["http://a:1"]), "default", None, clock, SECOND)
    opened = {"session": str(number), "ttl_ms": 9_000, "log_time_ms": 1_000, "deadline_ms": 10_000}
    return Session(link, "h", Answer(0, Head(201, {}), opened))


def test_a_session_whose_close_was_cancelled_is_forgotten_once_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close ended with its loop. The session is known until its own deadline, and no longer."""
    monkeypatch.setattr(_process, "_open", {})
    now = 0
    first, second, third = (_session(number, lambda: now) for number in range(3))
    _process.opened(first, None)
    first.end("closed", "a test")
    _process.opened(second, None)
    assert _process.is_open(first)
    now = 10 * SECOND
    _process.opened(third, None)
    assert not _process.is_open(first) and _process.is_open(third)


def test_the_exit_closes_the_newest_session_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old sessions without an answer leave no time for one another, but the newest has had its time."""
    closed: list[str] = []

    def record(session: Session, patience: int) -> Steps[None]:
        closed.append(session.id)
        yield from ()

    monkeypatch.setattr(_process, "_open", {})
    monkeypatch.setattr(_process, "_exit_begun", {})
    monkeypatch.setattr("lockkeeper_client.core.keep.close", record)
    for number in range(3):
        _process.opened(_session(number, lambda: 0), None)
    _process._exiting()  # pyright: ignore[reportPrivateUsage]
    assert closed == ["2", "1", "0"]
