"""What fails, and what the caller sees: each row of the table of the manual, on real processes."""

import logging
import signal
import threading
import time

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import Client, Error, LockLost, OutcomeUnknown, Unavailable


def _node_asked_by(nodes: Nodes, lk: Client) -> int:
    """Returns the node that a client asks next."""
    asked = lk._settings.link.endpoints.current  # pyright: ignore[reportPrivateUsage]
    return nodes.http.index(str(asked)) + 1


def test_the_kill_of_a_node_is_a_pause(own_nodes: Nodes) -> None:
    """Leader and asked node are killed: holder and waiter keep their token and their place."""
    nodes = own_nodes
    with nodes.client() as lk, nodes.client() as other:
        hold = lk.lock("a").acquire()
        token = hold.token
        granted: list[int] = []
        waiter = threading.Thread(target=lambda: granted.append(other.lock("a").acquire().token))
        waiter.start()
        await_true(lambda: lk.call("locks", lock="a")["waiters"], "a waiter")
        sequence = lk.call("locks", lock="a")["waiters"][0]["sequence"]
        for _ in range(2):
            victim = nodes.leader()
            nodes.kill(victim)
            hold.check()
            assert lk.check("a", token)
            nodes.start(victim)
            await_true(lambda: lk.call("locks", lock="a")["waiters"], "the waiter")
            assert lk.call("locks", lock="a")["waiters"][0]["sequence"] == sequence
        asked = _node_asked_by(nodes, lk)
        nodes.kill(asked)
        with lk.lock("b", wait=30) as second:
            assert token < second.token
        hold.release()
        waiter.join()
        assert token < granted[0]


def test_without_any_node_the_lock_is_lost_at_the_own_deadline(own_nodes: Nodes) -> None:
    """The holder loses the lock at its own deadline, which is reported once. Other callers get an error."""
    nodes = own_nodes
    lk = nodes.client(ttl=6, request_timeout=1.5)
    hold = lk.lock("a").acquire()
    lost: list[LockLost] = []
    hold.on_lost(lost.append)
    for node in (1, 2, 3):
        nodes.kill(node)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        lk.lock("b").acquire()
    left = hold.valid_for
    hold.check()
    assert 0 < left <= 6
    await_true(lambda: hold.lost, "the loss")
    await_true(lambda: lost, "the report of the loss")
    assert (lost[0].reason, lost[0].token, len(lost)) == ("expired", hold.token, 1)
    with pytest.raises(LockLost):
        hold.release()
    with pytest.raises(LockLost):
        hold.check()
    lk.close()


def test_a_body_that_lost_its_lock_raises_or_gets_a_note(own_nodes: Nodes) -> None:
    """The end of a body raises LockLost if the body raised nothing; otherwise its error gets a note."""
    nodes = own_nodes
    with nodes.client() as lk:
        with pytest.raises(LockLost) as lost, lk.lock("a") as hold:
            lk.call("break", lock="a", token=hold.token, why="a test")
            await_true(lambda: hold.lost, "the loss")
        assert lost.value.token == hold.token
        with pytest.raises(KeyError) as kept, lk.lock("a") as hold:
            lk.call("break", lock="a", token=hold.token, why="a test")
            raise KeyError("the error of the body")
        assert any("lost" in note for note in kept.value.__notes__)
        with pytest.raises(KeyError) as unchanged, lk.lock("a"):
            raise KeyError("the error of the body")
        assert not hasattr(unchanged.value, "__notes__")
        assert lk.call("locks", lock="a")["holders"] == []


def test_an_acquire_in_an_outage_leaves_nothing(own_nodes: Nodes) -> None:
    """An acquire whose outcome is unknown is withdrawn once nodes answer again."""
    nodes = own_nodes
    with nodes.client(ttl=30, request_timeout=2) as lk:
        lk.lock("warm").acquire().release()
        for node in (1, 2, 3):
            nodes.signal(node, signal.SIGSTOP)
        with pytest.raises(OutcomeUnknown):
            lk.lock("a", wait=0).acquire()
        for node in (1, 2, 3):
            nodes.signal(node, signal.SIGCONT)
        nodes.leader()
        with nodes.client() as other, other.lock("a", wait=30):
            pass
        await_true(lambda: _row(lk, "a") == ([], []), "no trace")


def test_a_closed_idle_connection_is_not_used(own_nodes: Nodes) -> None:
    """A node that was restarted has closed the idle connections, and the next call, which is not repeated, works."""
    nodes = own_nodes
    with Client(nodes.http[0]) as lk:
        hold = lk.lock("a").acquire()
        lk.call("ask", lock="a", token=hold.token, why="a test")
        nodes.kill(1)
        nodes.leader()
        nodes.start(1)
        await_true(lambda: _answers(nodes.http[0]), "the node")
        lk.call("ask", lock="a", token=hold.token, why="a test")
        hold.release()


def _answers(url: str) -> bool:
    with Client(url, request_timeout=1) as other:
        try:
            other.call("/v1/status")
        except Error:
            return False
    return True


def _row(lk: Client, name: str) -> tuple[object, object]:
    try:
        row = lk.call("locks", lock=name)
    except Error:
        return None, None
    return row["holders"], row["waiters"]


def test_a_stopped_node_is_left(own_nodes: Nodes) -> None:
    """A node that is stopped, and so neither answers nor refuses, delays a hold and a wait, and ends neither."""
    nodes = own_nodes
    with nodes.client(ttl=4, request_timeout=3) as lk:
        hold = lk.lock("a").acquire()
        asked = _node_asked_by(nodes, lk)
        nodes.signal(asked, signal.SIGSTOP)
        begun = time.monotonic()
        while time.monotonic() < begun + 6:
            hold.check()
            time.sleep(0.05)
        assert lk.check("a", hold.token)
        nodes.signal(asked, signal.SIGCONT)
        hold.release()


def test_a_stopped_node_keeps_no_cached_hold(own_nodes: Nodes) -> None:
    """The node of the stream reports no recall any more. Uses end within half a TTL, and others get the lock."""
    nodes, ttl, slow = own_nodes, 6, 10
    with nodes.client(ttl=ttl) as lk, nodes.client(ttl=600, request_timeout=20) as other:
        with lk.lock("a", cached=True):
            asked = _node_asked_by(nodes, lk)
        if _node_asked_by(nodes, other) == asked:
            endpoints = other._settings.link.endpoints  # pyright: ignore[reportPrivateUsage]
            endpoints.failed(endpoints.current)
        nodes.signal(asked, signal.SIGSTOP)
        stop = threading.Event()

        def use() -> None:
            while not stop.is_set():
                with lk.lock("a", cached=True) as hold:
                    hold.check()

        using = threading.Thread(target=use)
        using.start()
        begun = time.monotonic()
        with other.lock("a", wait=60):
            assert time.monotonic() - begun < ttl / 2 + slow
        stop.set()
        nodes.signal(asked, signal.SIGCONT)
        using.join()


def test_renewals_without_an_answer_are_logged(own_nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a warning after half a TTL without an answer, and an error at the loss."""
    nodes = own_nodes
    caplog.set_level(logging.WARNING, "lockkeeper_client")
    lk = nodes.client(ttl=3, request_timeout=2)
    hold = lk.lock("a").acquire()
    for node in (1, 2, 3):
        nodes.kill(node)
    await_true(lambda: hold.lost, "the loss")
    levels = [record.levelname for record in caplog.records if record.name == "lockkeeper_client"]
    assert levels.index("WARNING") < levels.index("ERROR")
    lk.close()


def test_a_break_reaches_the_holder(nodes: Nodes) -> None:
    """A break ends the hold, and the holder learns it at the latest with its next renewal."""
    with nodes.client(ttl=3) as lk, nodes.client() as other:
        hold = lk.lock("failures-broken").acquire()
        lost: list[LockLost] = []
        hold.on_lost(lost.append)
        other.call("break", lock="failures-broken", token=hold.token, why="a test")
        await_true(lambda: lost, "the report of the loss")
        assert lost[0].token == hold.token
        hold.on_lost(lost.append)
        assert len(lost) == 2, "a function that is added later is called at once"
        with lk.lock("failures-broken", wait=0) as again:
            assert hold.token < again.token


def test_the_end_of_a_session_by_an_operator_ends_its_holds(nodes: Nodes) -> None:
    """An operator ends the session: the hold is lost with the reason, and the next lock opens another session."""
    with nodes.client(ttl=3) as lk, nodes.client() as other:
        hold = lk.lock("failures-ended").acquire()
        session = other.call("locks", lock="failures-ended")["holders"][0]["session"]
        other.call(f"sessions/{session}/end", why="a test")
        await_true(lambda: hold.lost, "the loss")
        assert hold.lost is not None and hold.lost.reason == "broken"
        with lk.lock("failures-ended", wait=0) as again:
            assert hold.token < again.token


def test_a_lost_session_ends_a_wait(own_nodes: Nodes) -> None:
    """A waiter whose session ends gets an error, and not the lock."""
    nodes = own_nodes
    with nodes.client() as lk, lk.session(ttl=2) as session, nodes.client() as other:
        hold = other.lock("a").acquire()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                session.lock("a").acquire()
            except Error as error:
                errors.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        await_true(lambda: other.call("locks", lock="a")["waiters"], "a waiter")
        other.call(f"sessions/{session.id}/end", why="a test")
        waiter.join()
        assert isinstance(errors[0], Error) and errors[0].word == "session-ended"
        hold.release()
