"""Requests that may have been executed and that end without an answer: nothing is left behind."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from lockkeeper_client import NotAcquired, OutcomeUnknown
from lockkeeper_client.core.claim import LockRequest, acquire
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.errors import CLASSES
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.lease import LeaseState, acquire_lease
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, NotAnswered, NotSent, Pause, Steps

QUEUED, LOST, UNREACHABLE = "queued", "lost", "unreachable"
OTHERS = ["unauthenticated", "not-permitted", "internal", "invalid"]
"""Words of errors that do not say what became of an earlier attempt."""


class Cluster:
    """A cluster that queues each acquire. It performs the steps of operations, which have no other driver.

    `attempts` and `withdrawals` have what happens to the next requests: each is executed, and its answer arrives or is
    lost, or it is not executed. The last attempt is repeated, and later withdrawals are executed.
    """

    def __init__(self, attempts: Iterable[str], withdrawals: Iterable[str] = ()) -> None:
        self.attempts, self.withdrawals = list(attempts), list(withdrawals)
        self.places: set[str | None] = set()
        """The requests that the cluster will grant."""
        self.background: list[Steps[Any]] = []
        self._now = 0
        self.link = Link(Endpoints(["http://a:1"]), "default", None, lambda: self._now, SECOND)
        self.link.spawn = self.background.append
        opened = {"session": "1", "ttl_ms": 600_000, "log_time_ms": 1_000, "deadline_ms": 601_000}
        self.session = Session(self.link, "h", Answer(0, Head(201, {}), opened))

    def acquire(self, wait: int = 60 * SECOND) -> Steps[Any]:
        """Acquires a lock in the session."""
        return acquire(self.session, LockRequest(("a",), wait), METADATA)

    def lease(self, wait: int = 60 * SECOND) -> Steps[Any]:
        """Acquires a lease."""
        return acquire_lease(self.link, "a", 600 * SECOND, wait, {}, METADATA)

    def run(self, steps: Steps[Any]) -> Any:
        """Performs the steps of an operation."""
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.throw(error) if error else steps.send(value)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                value = self._perform(step)
            except (NotSent, NotAnswered) as failed:
                error = failed

    def _perform(self, step: object) -> tuple[Head, bytes] | None:
        if isinstance(step, Pause):
            self._now += step.duration
            return None
        assert isinstance(step, Exchange)
        self._now += SECOND // 10
        head, _, payload = step.request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode().rsplit("/", 1)[1]
        answer = {"log_time_ms": 1_000} if path == "status" else self._execute(path, json.loads(payload).get("request"))
        kind = "application/problem+json" if "error" in answer else "application/json"
        return Head(409 if "error" in answer else 200, {"content-type": kind}), json.dumps(answer).encode()

    def _execute(self, path: str, request: str | None) -> dict[str, Any]:
        if path == "withdraw":
            if self.withdrawals:
                return self._fail(self.withdrawals.pop(0))
            self.places.discard(request)
            return {"state": "withdrawn"}
        fate = self.attempts.pop(0) if len(self.attempts) > 1 else self.attempts[0]
        if fate not in (QUEUED, LOST):
            return self._fail(fate)
        self.places.add(request)
        return {"state": "queued"} if fate == QUEUED else self._fail(fate)

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
        ([LOST, "quota"], "quota"),
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

    A refusal of the first attempt is raised as it is.
    """
    granted = Answer(0, Head(200, {}), {"token": "7", "log_time_ms": 1_000, "deadline_ms": 601_000})
    cluster = Cluster([LOST, word])
    lease = LeaseState(cluster.link, "a", "h", 600 * SECOND, granted)
    with pytest.raises(OutcomeUnknown):
        cluster.run(lease.release())
    cluster.attempts = [word, word, QUEUED]
    (later,) = cluster.background
    cluster.run(later)
    assert lease.released and lease.lost is None
    refused = Cluster([word])
    lease = LeaseState(refused.link, "a", "h", 600 * SECOND, granted)
    with pytest.raises(CLASSES[word]):
        refused.run(lease.release())
    assert not lease.released and not refused.background
