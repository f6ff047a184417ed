"""Requests that may have been executed and that end without an answer: nothing is left behind."""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from lockkeeper_client import (
    Error,
    Internal,
    LockLost,
    NotAcquired,
    NotPermitted,
    OutcomeUnknown,
    Unauthenticated,
    Unavailable,
)
from lockkeeper_client.core.claim import LockRequest, acquire, change
from lockkeeper_client.core.clock import MILLISECOND, SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.errors import CLASSES, error_of
from lockkeeper_client.core.events import apply
from lockkeeper_client.core.follow import follow
from lockkeeper_client.core.holds import HoldState
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import close, keep
from lockkeeper_client.core.lease import LeaseState, acquire_lease
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.release import leave, release
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, Listen, NotAnswered, NotSent, Pause, Steps, never

QUEUED, LOST, UNREACHABLE = "queued", "lost", "unreachable"
GARBLED = "garbled"
"""The request is granted, and the answer has no token."""
OTHERS = ["unauthenticated", "not-permitted", "internal", "invalid"]
"""Words of errors that do not say what became of an earlier attempt."""


class Cluster:
    """A cluster of two nodes that queues each acquire. It performs the steps of operations, which have no other driver.

    `attempts` and `withdrawals` have what happens to the next requests: each is executed, and its answer arrives or is
    lost, or it is not executed. The last attempt is repeated, and later withdrawals are executed.
    """

    def __init__(self, attempts: Iterable[str], withdrawals: Iterable[str] = ()) -> None:
        self.attempts, self.withdrawals = list(attempts), list(withdrawals)
        self.faulty: dict[str, str] = {}
        """Nodes that execute nothing, with the word of their answers."""
        self.places: set[str | None] = set()
        """The requests that the cluster will grant."""
        self.background: list[Steps[Any]] = []
        self.now = 0
        self.link = Link(Endpoints(["http://a:1", "http://b:1"]), "default", None, lambda: self.now, SECOND)
        self.link.spawn = self.background.append
        opened = {"session": "1", "ttl_ms": 600_000, "log_time_ms": 1_000, "deadline_ms": 601_000}
        self.session = Session(self.link, "h", Answer(0, Head(201, {}), opened))

    def acquire(self, wait: int = 60 * SECOND) -> Steps[Any]:
        """Acquires a lock in the session."""
        return acquire(self.session, LockRequest(("a",), wait), METADATA)

    def lease(self, wait: int = 60 * SECOND) -> Steps[Any]:
        """Acquires a lease."""
        return acquire_lease(self.link, "a", 600 * SECOND, wait, {}, METADATA)

    def granted_lease(self) -> LeaseState:
        """Returns a lease of 600 s that is held."""
        granted = Answer(0, Head(200, {}), {"token": "7", "log_time_ms": 1_000, "deadline_ms": 601_000})
        return LeaseState(self.link, "a", "h", 600 * SECOND, granted)

    def hold(self, *names: str) -> HoldState:
        """Returns locks that the session holds."""
        hold = HoldState(self.session, {name: 7 for name in names}, None)
        self.session.add(hold)
        return hold

    def open_numbers(self) -> int:
        """Returns how many request numbers the session still has to answer, from the oldest one on."""
        number, answered_below = self.session.draw()
        self.session.finish(number)
        return number - answered_below

    def fail_current(self, word: str) -> None:
        """Lets the node that is asked next answer with this word from now on."""
        self.faulty = {str(self.link.endpoints.current): word}

    def run(self, steps: Steps[Any], until: int = 10**8 * SECOND) -> Any:
        """Performs the steps of an operation until it ends or the time has come."""
        value: Any = None
        error: BaseException | None = None
        while self.now < until:
            try:
                step = steps.throw(error) if error else steps.send(value)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = self._perform(step)
            except (NotSent, NotAnswered, Error) as failed:
                error = failed

    def _perform(self, step: object) -> tuple[Head, bytes] | None:
        if isinstance(step, Pause):
            if (stopped := step.stop()) is not None:
                raise stopped
            self.now += step.duration
            return None
        assert isinstance(step, Exchange)
        self.now += SECOND // 10
        head, _, payload = step.request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode().rsplit("/", 1)[1]
        if (word := self.faulty.get(str(step.endpoint))) is not None:
            answer = self._fail(word)
        else:
            answer = self._execute(path, json.loads(payload or b"{}"))
        kind = "application/problem+json" if "error" in answer else "application/json"
        return Head(409 if "error" in answer else 200, {"content-type": kind}), json.dumps(answer).encode()

    def _execute(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        log_time_ms, request = 1_000 + self.now // MILLISECOND, fields.get("request")
        ends = {"log_time_ms": log_time_ms, "deadline_ms": log_time_ms + fields.get("lease_ms", 600_000)}
        if path in ("status", "renew"):
            return ends
        if path == "withdraw":
            if self.withdrawals:
                return self._fail(self.withdrawals.pop(0))
            self.places.discard(request)
            return {"state": "withdrawn"}
        fate = self.attempts.pop(0) if len(self.attempts) > 1 else self.attempts[0]
        if fate not in (QUEUED, LOST, GARBLED):
            return self._fail(fate)
        self.places.add(request)
        if fate == GARBLED:
            return {"state": "granted", **ends}
        return {"state": "queued", **ends} if fate == QUEUED else self._fail(fate)

    def _fail(self, word: str) -> dict[str, Any]:
        if word == LOST:
            raise NotAnswered("a test")
        if word == UNREACHABLE:
            raise NotSent("a test")
        return {"error": word, "detail": "a test"}


METADATA = Metadata("a test", "here")


@pytest.mark.parametrize("kind", [Cluster.acquire, Cluster.lease])
@pytest.mark.parametrize(
    "attempts",
    [
        *([executed, word] for executed in (QUEUED, LOST) for word in (UNREACHABLE, "no-leader", *OTHERS)),
        ["internal"],
        [GARBLED],
    ],
)
def test_a_request_that_may_have_been_executed_is_withdrawn(kind: Any, attempts: list[str]) -> None:
    """An attempt was executed, and a later one fails: the error says so, and the request is gone in the end.

    The withdrawal is repeated after all errors, because no caller could do it again.
    """
    cluster = Cluster(attempts, [*OTHERS, UNREACHABLE, LOST, "no-leader"])
    with pytest.raises(OutcomeUnknown):
        cluster.run(kind(cluster))
    (withdrawal,) = cluster.background
    cluster.run(withdrawal)
    assert not cluster.places and not cluster.withdrawals
    number, answered_below = cluster.session.draw()
    assert number == answered_below, "no number stays open"


@pytest.mark.parametrize("kind", [Cluster.acquire, Cluster.lease])
def test_a_withdrawal_without_an_answer_continues(kind: Any) -> None:
    """The wait is over in an outage: the caller gets an error in time, and the withdrawal continues."""
    cluster = Cluster([QUEUED], ["no-leader"] * 50)
    with pytest.raises(OutcomeUnknown):
        cluster.run(kind(cluster, 0))
    assert cluster.places and cluster.withdrawals
    (withdrawal,) = cluster.background
    cluster.run(withdrawal)
    assert not cluster.places


@pytest.mark.parametrize("kind", [Cluster.acquire, Cluster.lease])
def test_a_final_answer_is_not_in_doubt(kind: Any) -> None:
    """An error of a request that was never executed, and a refusal, are the caller's, and nothing is withdrawn."""
    for attempts, word in (
        (["no-leader"], "no-leader"),
        *(([word], word) for word in OTHERS if word != "internal"),
        ([QUEUED, "deadlock"], "deadlock"),
        (["quota"], "quota"),
        *([([LOST, "quota"], "quota")] if kind is Cluster.acquire else []),
    ):
        cluster = Cluster(attempts)
        with pytest.raises(CLASSES[word]):
            cluster.run(kind(cluster))
        assert not cluster.background, attempts
    over = Cluster([QUEUED])
    with pytest.raises(NotAcquired):
        over.run(kind(over, 0))
    assert not over.background and not over.places


@pytest.mark.parametrize("word", OTHERS)
def test_a_release_of_a_lease_that_is_refused_after_a_lost_answer_is_in_doubt(word: str) -> None:
    """The first attempt may have released the lease. The release is repeated until it is answered, and nothing is lost.

    A refusal of the first attempt is raised as it is, but an internal error is in doubt itself.
    """
    cluster = Cluster([LOST, word])
    lease = cluster.granted_lease()
    with pytest.raises(OutcomeUnknown):
        cluster.run(lease.release())
    cluster.attempts = [word, word, QUEUED]
    (later,) = cluster.background
    cluster.run(later)
    assert lease.released and lease.lost is None
    refused = Cluster([word])
    lease = refused.granted_lease()
    with pytest.raises(OutcomeUnknown if word == "internal" else CLASSES[word]):
        refused.run(lease.release())
    assert lease.released == bool(refused.background) == (word == "internal")


@pytest.mark.parametrize("attempts", [[LOST], ["internal"], *([LOST, word] for word in OTHERS)])
def test_a_refresh_in_doubt_may_have_shortened_the_lease(attempts: list[str]) -> None:
    """The refresh may have been executed: from its end on the lease is lost, and the release is sent all the same."""
    cluster = Cluster(attempts)
    lease = cluster.granted_lease()
    with pytest.raises(OutcomeUnknown):
        cluster.run(lease.refresh(5 * SECOND))
    lease.check()
    assert 0 < lease.valid_for < 5
    cluster.now += 5 * SECOND
    assert lease.lost is not None and lease.valid_for == 0
    with pytest.raises(LockLost):
        cluster.run(lease.release())
    cluster.attempts = ["no-leader", QUEUED]
    (later,) = cluster.background
    cluster.run(later)
    assert cluster.attempts == [QUEUED] and cluster.places


def test_a_cancelled_refresh_may_have_shortened_the_lease() -> None:
    """The caller cancels the refresh before its answer: the lease is valid until the earlier end."""
    cluster = Cluster([QUEUED])
    lease = cluster.granted_lease()
    steps = lease.refresh(5 * SECOND)
    next(steps)
    steps.close()
    assert 0 < lease.valid_for < 5


def test_a_refresh_that_was_not_sent_ends_no_lease() -> None:
    """No node is reached for longer than the new duration: the lease lasts as before, and no call finds it ended."""
    cluster = Cluster([UNREACHABLE] * 10)
    lease = cluster.granted_lease()
    before, steps = lease.valid_for, lease.refresh(SECOND)
    with pytest.raises(Unavailable):
        cluster.run(watched(steps, lease))
    assert before - 20 < lease.valid_for


def watched(steps: Steps[None], lease: LeaseState) -> Steps[None]:
    """Makes the steps. Checks the lease after each attempt that failed."""
    step = next(steps)
    while True:
        try:
            answer = yield step
        except (NotSent, Error) as error:
            step = steps.throw(error)
            lease.check()
        else:
            step = steps.send(answer)


def test_a_later_answer_ends_the_doubt_about_a_refresh() -> None:
    """A refresh that was not executed changes nothing, and the answer to a later one overrides one in doubt."""
    for word in (UNREACHABLE, *(word for word in OTHERS if word != "internal")):
        refused = Cluster([word])
        lease = refused.granted_lease()
        with pytest.raises(CLASSES.get(word, Unavailable)):
            refused.run(lease.refresh(5 * SECOND))
        assert 500 < lease.valid_for
    cluster = Cluster([LOST])
    lease = cluster.granted_lease()
    with pytest.raises(OutcomeUnknown):
        cluster.run(lease.refresh(5 * SECOND))
    cluster.attempts = [QUEUED]
    cluster.run(lease.refresh(None))
    assert 500 < lease.valid_for
    first, second = lease.refresh(None), lease.refresh(5 * SECOND)
    next(first)
    next(second)
    answer = {"log_time_ms": 2_000, "deadline_ms": 602_000}
    with pytest.raises(StopIteration):
        first.send((Head(200, {}), json.dumps(answer).encode()))
    assert lease.valid_for < 5, "the answer to an earlier attempt does not end the doubt about a later one"


@pytest.mark.parametrize("attempts", [[LOST, "not-permitted"], ["internal"]])
def test_a_release_in_doubt_is_repeated(attempts: list[str]) -> None:
    """The cluster may have released the lock, so the session no longer watches over it, and finds no false loss."""
    cluster = Cluster(attempts)
    hold = cluster.hold("a")
    with pytest.raises(OutcomeUnknown):
        cluster.run(release(hold))
    assert hold.released and not cluster.session.watched() and cluster.open_numbers()
    cluster.attempts = ["internal", QUEUED]
    (later,) = cluster.background
    cluster.run(later)
    assert cluster.attempts == [QUEUED] and not cluster.open_numbers()


def test_each_lock_of_a_set_has_its_own_doubt() -> None:
    """One lock is released after a lost answer, and the release of the other one is refused: it alone is still held."""
    cluster = Cluster([LOST, QUEUED, "not-permitted"])
    hold = cluster.hold("a", "b")
    with pytest.raises(NotPermitted):
        cluster.run(release(hold))
    assert list(hold.tokens) == ["b"] and cluster.session.watched() == [hold]
    hold.check()
    assert not cluster.background and not cluster.open_numbers()


@pytest.mark.parametrize("attempts", [[LOST], [LOST, "not-permitted"], ["internal"]])
def test_a_change_in_doubt_leaves_no_open_number(attempts: list[str]) -> None:
    """No attempt of a change follows its error, so the cluster may forget its outcome. So it may after a cancel."""
    cluster = Cluster(attempts)
    hold = cluster.hold("a")
    with pytest.raises(OutcomeUnknown):
        cluster.run(change(hold, "value", value="v"))
    cancelled = change(hold, "value", value="v")
    next(cancelled)
    assert cluster.open_numbers()
    cancelled.close()
    assert not cluster.open_numbers()


@pytest.mark.parametrize("word", OTHERS)
def test_a_node_with_its_own_fault_is_left(word: str) -> None:
    """One node has old rules, or a bug: the withdrawal and the renewals of the session succeed at the other node."""
    cluster = Cluster([QUEUED, UNREACHABLE])
    with pytest.raises(OutcomeUnknown):
        cluster.run(cluster.lease())
    (withdrawal,) = cluster.background
    cluster.fail_current(word)
    cluster.run(withdrawal, cluster.now + 60 * SECOND)
    assert not cluster.places
    cluster.fail_current(word)
    cluster.run(keep(cluster.session), cluster.now + 1_200 * SECOND)
    assert cluster.session.ended is None


@pytest.mark.parametrize("word", ["not-permitted", "invalid"])
def test_a_refused_call_stays_at_its_node(word: str) -> None:
    """A call that its caller does not repeat moves no other call of the client to another node, which may be dead."""
    cluster = Cluster([QUEUED])
    cluster.fail_current(word)
    asked = cluster.link.endpoints.current
    hold = cluster.hold("a")
    for steps in (cluster.lease(), change(hold, "value", value="v"), release(hold), cluster.granted_lease().release()):
        with pytest.raises(Error):
            cluster.run(steps)
        assert cluster.link.endpoints.current == asked


@pytest.mark.parametrize("word", ["no-leader", *OTHERS])
def test_a_close_that_a_node_refuses_succeeds_at_another_one(word: str) -> None:
    """One node has old rules, or a bug. No caller could close the session again, so the other node is asked, too."""
    cluster = Cluster([QUEUED])
    cluster.fail_current(word)
    cluster.run(close(cluster.session, SECOND))
    assert cluster.places, "the other node has executed it"


@pytest.mark.parametrize("number", ["x", "1e3", "²", "9" * 5_000])
def test_a_header_that_is_no_number_is_an_internal_error(number: str) -> None:
    """A broken node sends a malformed position or log time: an attempt fails, as for a malformed body."""
    answer = Answer(0, Head(200, {"lockkeeper-index": number, "lockkeeper-log-time": number}), {})
    with pytest.raises(Internal):
        _ = answer.index
    with pytest.raises(Internal):
        _ = answer.log_time_ms


@pytest.mark.parametrize("number", ["1e999", "NaN", "[]", '"x"', "{}"])
def test_a_field_that_is_no_number_is_an_internal_error(number: str) -> None:
    """A broken node sends a malformed deadline, token or pause."""
    answer = Answer(0, Head(200, {}), json.loads(f'{{"state": "granted", "deadline_ms": {number}, "token": {number}}}'))
    with pytest.raises(Internal):
        answer.number("deadline_ms")
    if number not in ("[]", "{}"):
        assert isinstance(error_of(json.loads(f'{{"error": "overloaded", "pause_ms": {number}}}')), Internal)
    cluster = Cluster([QUEUED])
    steps = cluster.acquire()
    next(steps)
    with pytest.raises(OutcomeUnknown):
        steps.send((Head(200, {"content-type": "application/json"}), json.dumps(answer.body).encode()))


class _Raises(logging.Handler):
    """A handler with a fault, as of a program whose disk is full."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space left")


@pytest.fixture
def raising() -> Iterable[None]:
    """Lets each warning and error of the client's log raise an error."""
    handler = _Raises()
    logging.getLogger("lockkeeper_client").addHandler(handler)
    yield
    logging.getLogger("lockkeeper_client").removeHandler(handler)


class _Away(Cluster):
    """A cluster that cannot be reached at first."""

    def __init__(self, attempts: Iterable[str], until: int) -> None:
        super().__init__(attempts)
        self._until = until

    def _execute(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        return self._fail(UNREACHABLE) if self.now < self._until else super()._execute(path, fields)


@pytest.mark.parametrize("lasts", [500, 10_000])
def test_a_log_that_raises_ends_no_renewals(raising: None, lasts: int) -> None:
    """No node answers for a while. The session outlasts a short outage, and its loss in a long one is reported."""
    cluster = _Away([QUEUED], lasts * SECOND)
    lost: list[LockLost] = []
    cluster.hold("a").on_lost(lost.append)
    cluster.run(keep(cluster.session), 1_200 * SECOND)
    assert (cluster.session.ended is not None) == bool(lost) == (lasts == 10_000)


def test_a_log_that_raises_hides_no_loss(raising: None) -> None:
    """The caller gets the error of the loss, and not the one of its own log."""
    over = Cluster([QUEUED])
    lease = over.granted_lease()
    over.now = 600 * SECOND
    assert lease.lost is not None and lease.lost.reason == "expired"
    hold = over.hold("b")
    hold.lose("broken", "a test")
    with pytest.raises(LockLost):
        hold.check()


def _fails(*_: object) -> None:
    raise ValueError("a fault of the program")


def test_a_function_that_fails_ends_no_renewals(raising: None) -> None:
    """The function of a lost hold fails, and so does the log of that. The other hold is kept, and its loss reported."""
    cluster = Cluster([QUEUED])
    broken, kept = cluster.hold("a"), cluster.hold("b")
    lost: list[LockLost] = []
    broken.on_lost(_fails)
    kept.on_lost(lost.append)
    broken.lose("broken", "a test")
    cluster.run(keep(cluster.session), 1_200 * SECOND)
    assert cluster.session.ended is None and cluster.session.watched() == [kept] and not lost
    kept.lose("broken", "a test")
    cluster.run(keep(cluster.session), 1_500 * SECOND)
    assert len(lost) == 1


def test_a_function_that_fails_ends_no_stream_of_events(raising: None) -> None:
    """A client asks for the lock, and a function of the holder fails, and so does the log: the next one is called."""
    cluster = Cluster([QUEUED])
    hold = cluster.hold("a")
    asked: list[tuple[str, str]] = []
    hold.on_asked(_fails)
    hold.on_asked(lambda by, why: asked.append((by, why)))
    apply(cluster.session, "revoke-requested", {"token": "7", "by": "x", "why": "y"})
    assert asked == [("x", "y")]


def test_a_log_that_raises_adds_no_error(raising: None, caplog: pytest.LogCaptureFixture) -> None:
    """The program logs all levels: the end of a block, a close, and a change that settles an upgrade end as without."""
    caplog.set_level(logging.DEBUG, "lockkeeper_client")
    cluster = Cluster([LOST])
    cluster.run(leave(cluster.hold("a"), None))
    assert len(cluster.background) == 1, "the release continues"
    cluster.run(close(cluster.session, SECOND))
    refused = Cluster([QUEUED], ["not-held"])
    hold = refused.hold("a")
    hold.upgrades[refused.session.draw()[0]] = True
    refused.run(change(hold, "value", value="v"))


def test_the_loss_of_a_lease_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one error, at the first call that finds the end."""
    over, gone = Cluster([QUEUED]), Cluster(["not-held"])
    lease = over.granted_lease()
    assert lease.lost is None and not caplog.records
    over.now = 600 * SECOND
    assert lease.lost is not None and lease.lost.reason == "expired"
    with pytest.raises(LockLost):
        gone.run(gone.granted_lease().release())
    ends = [("ERROR", f"the lease of a (token 7) has ended: {reason}") for reason in ("expired", "ended")]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == ends


@pytest.mark.parametrize(
    ("kind", "word"),
    [("session", word) for word in (UNREACHABLE, "no-leader", *OTHERS)]
    + [("watch", word) for word in (UNREACHABLE, "no-leader", "unauthenticated", "internal")],
)
def test_a_node_without_a_stream_is_left(kind: str, word: str) -> None:
    """A node refuses the stream of events, or is gone: the next attempt asks the other one, and not the same again."""
    cluster = Cluster([QUEUED])
    steps = follow(cluster.session) if kind == "session" else cluster.link.follow("watch", {}, SECOND, never)
    listen = next(steps)
    assert isinstance(listen, Listen)
    with suppress(Error):
        if word == UNREACHABLE:
            steps.throw(NotSent("a test"))
        else:
            steps.send(Head(503, {"content-type": "application/problem+json"}))
            steps.send(json.dumps({"error": word}).encode())
            steps.send(b"")
    assert cluster.link.endpoints.current != listen.endpoint


def test_a_withdrawal_of_a_lease_ends_with_all_that_it_could_leave() -> None:
    """The token was revoked: the place and the lease end by themselves, and the withdrawal ends soon after them."""
    cluster = Cluster([QUEUED, "unauthenticated"], ["unauthenticated"] * 10**5)
    with pytest.raises(OutcomeUnknown):
        cluster.run(cluster.lease())
    begun = cluster.now
    (withdrawal,) = cluster.background
    with pytest.raises(Unauthenticated):
        cluster.run(withdrawal)
    assert 600 * SECOND < cluster.now - begun < 700 * SECOND


def test_a_lease_without_room_after_a_lost_answer_is_withdrawn() -> None:
    """The cluster does not remember this refusal, and may grant the lost copy later. A withdrawal needs room, too."""
    cluster = Cluster([LOST, "quota"], ["quota", "quota"])
    with pytest.raises(OutcomeUnknown):
        cluster.run(cluster.lease())
    (withdrawal,) = cluster.background
    cluster.run(withdrawal)
    assert not cluster.places and not cluster.withdrawals
