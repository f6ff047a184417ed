"""Events of a session: requests to release, breaks, hand-overs, and its end."""

import asyncio
import json
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import AsyncHold, Error, InvalidArgument, LockLost, NotPermitted
from lockkeeper_client._tasks import Tasks
from lockkeeper_client.core import events
from lockkeeper_client.core.claim import LockRequest, acquire
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.events import apply, replay
from lockkeeper_client.core.follow import follow
from lockkeeper_client.core.holds import HoldState
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import keep, look_for_losses, report
from lockkeeper_client.core.link import JSON_PROBLEM, Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.release import release
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, Listen, Next, NotAnswered, Pause, Step, Steps


def _session() -> Session:
    link = Link(Endpoints(["http://a:1"]), "default", None, lambda: 0, SECOND)
    opened = {"session": "1", "ttl_ms": 9_000, "log_time_ms": 1_000, "deadline_ms": 10_000}
    return Session(link, "h", Answer(0, Head(201, {}), opened))


def _hold(session: Session, token: int) -> HoldState:
    hold = HoldState(session, {"a": token}, None)
    session.add(hold)
    return hold


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("broken", {"token": "7", "by": "ops", "why": "dead host"}, "broken"),
        ("handed-over", {"token": "9", "from": "7", "by": "ops"}, "handed over"),
        ("expired", {"token": "7", "reason": "time over"}, "time over"),
        ("session-ended", {"reason": "broken", "why": "its host is dead"}, "broken"),
        ("session-ended", {"reason": "broken", "why": "released"}, "broken"),
        ("session-ended", {"reason": "a later word"}, "broken"),
        ("session-ended", {"reason": "expired"}, "expired"),
    ],
)
def test_an_event_that_ends_a_hold_is_reported(
    name: str, fields: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The hold of the token is lost, with the reason and the words of the operator, and no other hold."""
    session = _session()
    hold, other = _hold(session, 7), _hold(session, 8)
    lost: list[str] = []
    hold.on_lost(lambda error: lost.append(error.reason))
    apply(session, name, fields)
    assert lost == [reason]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert hold.lost is not None and str(fields.get("why", fields.get("reason", ""))) in str(hold.lost)
    assert (other.lost is None) == (name != "session-ended")


def test_a_request_to_release_changes_nothing() -> None:
    """The function of the holder gets the asking client and its reason, each time."""
    session = _session()
    hold = _hold(session, 7)
    asked: list[tuple[str, str]] = []
    hold.on_asked(lambda by, why: asked.append((by, why)))
    for _ in range(2):
        apply(session, "revoke-requested", {"token": "7", "by": "ops", "why": "please finish"})
    assert asked == [("ops", "please finish")] * 2 and hold.lost is None


def test_an_event_that_arrives_before_its_grant_counts() -> None:
    """A break may arrive before the answer of the acquire. Events of no hold and of later versions change nothing."""
    session = _session()
    apply(session, "broken", {"token": "7", "why": "early"})
    apply(session, "broken", {"token": None})
    apply(session, "invented", {"token": "7"})
    hold = _hold(session, 7)
    assert hold.lost is None
    replay(session, hold)
    assert hold.lost is not None and hold.lost.reason == "broken"


def test_an_event_that_arrives_with_its_grant_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread applies a break at the same time as another one adds the hold: either of them finds the loss."""
    session = _session()
    _hold(session, 8)
    granted: list[HoldState] = []
    threads: list[threading.Thread] = []
    concerns: Callable[..., bool] = events._concerns  # pyright: ignore[reportPrivateUsage]

    def grant() -> None:
        granted.append(_hold(session, 7))
        replay(session, granted[0])

    def grant_meanwhile(*arguments: Any) -> bool:
        if not threads:
            threads.append(threading.Thread(target=grant))
            threads[0].start()
            threads[0].join(0.2)
        return concerns(*arguments)

    monkeypatch.setattr(events, "_concerns", grant_meanwhile)
    apply(session, "broken", {"token": "7"})
    threads[0].join()
    assert granted[0].lost is not None and granted[0].lost.reason == "broken"


def test_a_session_that_ended_without_its_stream_is_lost_at_once() -> None:
    """The end comes while the stream is down: the answer to the next stream ends the session, before any renewal."""
    session = _session()
    hold = _hold(session, 7)
    lost: list[str] = []
    hold.on_lost(lambda error: lost.append(error.reason))
    steps = follow(session)
    assert isinstance(next(steps), Listen)
    assert isinstance(steps.send(Head(409, {"content-type": JSON_PROBLEM})), Next)
    problem = {"error": "session-ended", "detail": "ended by ops", "reason": "broken", "advice": "give_up"}
    assert isinstance(steps.send(json.dumps(problem).encode()), Next)
    with pytest.raises(StopIteration):
        steps.send(b"")
    assert lost == ["broken"] and session.ended is not None


def _answer(**body: Any) -> tuple[Head, bytes]:
    """Returns what a node answers."""
    kind = JSON_PROBLEM if "error" in body else "application/json"
    return Head(409 if "error" in body else 200, {"content-type": kind}), json.dumps(body).encode()


REFUSED = _answer(error="not-permitted", detail="a test")


def _renew(session: Session, valid: bool, refused: str = "") -> list[str]:
    """Renews the session once, and returns the calls. A node answers them, but refuses the check of one lock."""
    session.due = 0
    calls: list[str] = []
    steps = keep(session)
    step = next(steps)
    while not isinstance(step, Pause):
        assert isinstance(step, Exchange)
        calls.append(step.request.split(b" ")[1].decode().rsplit("/", 1)[1].split("?")[0])
        if refused and f'"lock": "{refused}"'.encode() in step.request:
            step = steps.send(REFUSED)
        else:
            step = steps.send(_answer(log_time_ms=1_000, deadline_ms=10_000, valid=valid))
    return calls


def _stream(session: Session) -> tuple[Steps[None], Step]:
    """Begins a stream of events. Returns its steps, and the first one after its start."""
    steps = follow(session)
    assert isinstance(next(steps), Listen)
    return steps, steps.send(Head(200, {"content-type": "text/event-stream"}))


@pytest.mark.parametrize("cause", ["no answer", "no-leader", "overloaded", "a renewal is due", "an upgrade"])
def test_a_break_that_no_check_finds_at_once_is_found_later(cause: str) -> None:
    """A hold is broken while the stream is down, and the check at the next stream fails: a renewal finds the loss."""
    session = _session()
    hold = _hold(session, 7)
    if cause == "a renewal is due":
        session.due = 0
    if cause == "an upgrade":
        hold.upgrades[1] = False
    steps, step = _stream(session)
    if cause != "a renewal is due":
        assert isinstance(step, Exchange)
        if cause == "no answer":
            step = steps.throw(NotAnswered("a test"))
        else:
            step = steps.send(_answer(valid=False) if cause == "an upgrade" else _answer(error=cause, detail="a test"))
    assert isinstance(step, Next), "the stream is read meanwhile"
    hold.upgrades.clear()
    assert hold.lost is None
    assert _renew(session, valid=False) == ["renew", "check", "history"]
    assert hold.lost is not None and hold.lost.reason == "ended"


def test_a_checked_hold_is_checked_again_only_after_a_gap() -> None:
    """Renewals leave a hold to the stream that began before its check. At the end of the stream they check it again."""
    session = _session()
    _hold(session, 7)
    steps, _ = _stream(session)
    assert isinstance(steps.send(_answer(valid=True)), Next)
    assert _renew(session, valid=True) == ["renew"]
    assert isinstance(steps.throw(NotAnswered("a test")), Listen)
    assert _renew(session, valid=True) == ["renew", "check"]


def test_a_check_that_began_before_the_stream_does_not_count() -> None:
    """The hold is broken between its check and the start of the stream: the next check finds the loss."""
    session = _session()
    hold = _hold(session, 7)
    before = look_for_losses(session)
    assert isinstance(next(before), Exchange)
    steps, _ = _stream(session)
    assert isinstance(steps.throw(NotAnswered("a test")), Next)
    with pytest.raises(StopIteration):
        before.send(_answer(valid=True))
    assert _renew(session, valid=False) == ["renew", "check", "history"]
    assert hold.lost is not None


@pytest.mark.parametrize("gap", [False, True])
def test_a_break_before_the_stream_of_a_hold_is_found(gap: bool) -> None:
    """The answer that grants a lock comes after the start of a stream. Only what a stream reports needs no check."""
    session = _session()
    steps = None if gap else _stream(session)
    acquired = acquire(session, LockRequest(("a",), 0), Metadata("a test", "here"))
    assert isinstance(next(acquired), Exchange)
    steps = steps or _stream(session)
    with pytest.raises(StopIteration) as granted:
        acquired.send(_answer(state="granted", token="7"))
    assert _renew(session, valid=False) == (["renew", "check", "history"] if gap else ["renew"])
    assert (granted.value.value.lost is not None) == gap
    steps[0].close()


def test_a_check_that_is_refused_hides_no_other_loss() -> None:
    """The rules no longer permit the check of one lock: the other locks are checked, and the one again and again."""
    session = _session()
    holds = [HoldState(session, {name: 7}, None) for name in "abc"]
    for hold in holds:
        session.add(hold)
    assert sorted(_renew(session, valid=False, refused="b")) == ["check"] * 3 + ["history"] * 2 + ["renew"]
    assert [hold.lost is None for hold in holds] == [False, True, False]
    steps, _ = _stream(session)
    assert isinstance(steps.send(REFUSED), Next)
    assert _renew(session, valid=True, refused="b") == _renew(session, valid=True) == ["renew", "check"]
    assert _renew(session, valid=True) == ["renew"]


def test_a_break_during_a_refused_release_is_found() -> None:
    """No hold is watched when the break arrives, and then the release is refused: the next renewal finds the loss."""
    session = _session()
    hold = _hold(session, 7)
    steps, _ = _stream(session)
    assert isinstance(steps.send(_answer(valid=True)), Next)
    released = release(hold)
    assert isinstance(next(released), Exchange)
    apply(session, "broken", {"token": "7"})
    with pytest.raises(NotPermitted):
        released.send(REFUSED)
    assert hold.lost is None
    assert _renew(session, valid=False) == ["renew", "check", "history"]
    assert hold.lost is not None


def test_an_error_that_is_raised_again_does_not_grow() -> None:
    """Each caller gets an exception of its own for the same end: callers share no traceback, context or note."""
    session = _session()
    hold = _hold(session, 7)
    given: list[LockLost] = []
    hold.on_lost(given.append)
    hold.on_lost(given.append)
    apply(session, "session-ended", {"reason": "broken"})
    raised: list[Error] = []
    for _ in range(3):
        with pytest.raises(LockLost) as lost:
            hold.check()
        raised.append(lost.value)
    ends = [session.ended, session.ended]
    assert len({id(error) for error in [*given, *raised, *ends]}) == 7
    assert len({len(list(traceback.walk_tb(error.__traceback__))) for error in raised}) == 1
    assert len({(str(error), str(error.problem)) for error in [*given, *raised]}) == 1


def test_a_body_that_finds_its_loss_itself_is_cancelled() -> None:
    """The body registers a function after the loss, before the task looks: the function is called at once, and once.

    The report of the task that renews then cancels the body.
    """
    session = _session()
    lost: list[object] = []
    finished: list[object] = []

    async def main() -> None:
        async with AsyncHold(_hold(session, 7), Tasks(session.link.clock, None)) as hold:
            session.end("expired", "a test")
            hold.on_lost(lost.append)
            assert len(lost) == 1
            asyncio.get_running_loop().call_soon(report, session)
            for _ in range(10):
                await asyncio.sleep(0)
            finished.append(hold)

    with pytest.raises(LockLost):
        asyncio.run(main())
    assert not finished and len(lost) == 1


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, asyncio.CancelledError, KeyboardInterrupt])
def test_a_function_that_fails_stops_nothing(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """An error of a function of the program is logged, and the next function is called by the same thread.

    So is `sys.exit()`, which would end the thread that renews the session without a word.
    """
    session = _session()
    hold = _hold(session, 7)
    lost: list[object] = []

    def fails(error: object) -> None:
        raise kind("a bug of the program")

    hold.on_lost(fails)
    hold.on_lost(lost.append)
    renewing = threading.Thread(target=apply, args=(session, "broken", {"token": "7"}))
    renewing.start()
    renewing.join()
    assert len(lost) == 1
    assert "a function of the program failed" in caplog.messages


def test_ctrl_c_during_a_function_of_the_program_ends_it() -> None:
    """The main thread reports the loss itself, for example in a release: Ctrl-C ends the release, and not the wait."""
    hold = _hold(_session(), 7)

    def interrupted(error: object) -> None:
        raise KeyboardInterrupt

    hold.on_lost(interrupted)
    hold.lose("broken", "a test")
    with pytest.raises(KeyboardInterrupt):
        hold.report()


@pytest.mark.parametrize("function", [None, "x"])
def test_a_callback_is_a_function(function: Any) -> None:
    """What cannot be called is refused at once, and not at the loss."""
    hold = _hold(_session(), 7)
    for register in (hold.on_lost, hold.on_asked):
        with pytest.raises(InvalidArgument, match="a function"):
            register(function)


def test_a_request_to_release_reaches_the_holder(nodes: Nodes) -> None:
    """`ask` calls the function of the holder, which continues to hold."""
    with nodes.client() as lk, nodes.client() as other, lk.lock("events-ask") as hold:
        state = hold._state.session  # pyright: ignore[reportPrivateUsage]
        await_true(lambda: state.stream, "the stream of events")
        asked: list[tuple[str, str]] = []
        hold.on_asked(lambda by, why: asked.append((by, why)))
        other.ask("events-ask", hold.token, "please finish")
        await_true(lambda: asked, "the request")
        assert asked[0][1] == "please finish"
        hold.check()


def test_a_loss_that_the_body_raises_has_no_note_on_itself(nodes: Nodes) -> None:
    """The error of the body is the loss of the block, so the end of the block adds nothing."""
    with nodes.client() as lk:
        with pytest.raises(LockLost) as lost, lk.lock("events-note") as hold:
            lk.call("break", lock="events-note", token=hold.token, why="a test")
            await_true(lambda: hold.lost, "the loss")
            hold.check()
        assert not hasattr(lost.value, "__notes__")


def test_a_hand_over_ends_the_hold(nodes: Nodes) -> None:
    """The holder loses the lock to the session that an operator names, which accepts hand-overs."""
    with nodes.client(ttl=3) as lk, nodes.client() as other:
        hold = lk.lock("events-handed").acquire()
        with other.session(accepts_hand_over=True) as heir:
            handed = other.call("handover", lock="events-handed", token=hold.token, to=heir.id)
            await_true(lambda: hold.lost, "the loss")
            assert hold.lost is not None and hold.lost.reason == "handed over"
            assert other.check("events-handed", int(handed["token"]))


def test_a_break_before_the_stream_has_its_reason(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that no stream notifies finds that its hold has ended, and reads who broke it and why."""

    def no_stream(_: Session) -> Steps[None]:
        yield from ()

    monkeypatch.setattr("lockkeeper_client.sync.follow", no_stream)
    with nodes.client(ttl=3) as lk, nodes.client() as other:
        hold = lk.lock("events-unseen").acquire()
        other.call("break", lock="events-unseen", token=str(hold.token), why="stuck")
        await_true(lambda: hold.lost, "the loss")
        assert hold.lost is not None and hold.lost.reason == "broken"
        assert "stuck" in str(hold.lost)
