"""The belief of a client never outlives the end in the cluster, by a simulation of clocks, delays and losses."""

import json
import random
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockkeeper_client.core import errors
from lockkeeper_client.core.claim import LockRequest, acquire
from lockkeeper_client.core.clock import MILLISECOND, SECOND, boot_clock
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.errors import Unavailable
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import keep
from lockkeeper_client.core.link import Link
from lockkeeper_client.core.metadata import Metadata
from lockkeeper_client.core.retry import Backoff
from lockkeeper_client.core.session import open_session
from lockkeeper_client.core.steps import Exchange, NotAnswered, NotSent, Pause, Steps
from lockkeeper_client.core.validity import Proof, Validity

TTL_MS = 3_000


@dataclass
class World:
    """Real time, the client's clock, whose rate differs by up to 1 %, and one session of the cluster.

    Log time follows real time, and stands still while the cluster has no leader. Plans are drawn by hypothesis.
    """

    rate: float
    plans: list[tuple[str, int, int]]
    stalls: list[int]
    real: int = 0
    log: int = 50_000 * MILLISECOND
    deadline: int = 0
    index: int = 0
    ended: bool = False
    handle: str | None = None
    cluster: str = "c"
    overlaps: list[str] = field(default_factory=list[str])
    believes: Callable[[], bool] = lambda: False

    def clock(self) -> int:
        """Returns the client's clock."""
        return int(self.real * self.rate) + 7 * SECOND

    def advance(self, duration: int) -> None:
        """Lets time pass in small steps. After each, the belief of the client is compared with the cluster."""
        while duration > 0:
            step = min(duration, 50 * MILLISECOND)
            self.real += step
            stalled = bool(self.stalls) and self.stalls[self.real // SECOND % len(self.stalls)] == 1
            self.log += 0 if stalled else step
            if self.deadline and self.deadline < self.log:
                self.ended = True
            if self.ended and self.believes():
                self.overlaps.append(f"at {self.real / SECOND:.3f} s")
            duration -= step

    def answer(self, path: str, body: dict[str, Any]) -> tuple[Head, bytes]:
        """Executes a request of the client."""
        opens = path.endswith("/sessions")
        repeated = opens and self.handle == body["handle"]
        if opens and not repeated:
            self.handle, self.ended = body["handle"], False
        if self.ended:
            problem = {"error": "session-ended", "advice": "give_up", "detail": "ended", "reason": "expired"}
            return Head(409, {"content-type": "application/problem+json"}), json.dumps(problem).encode()
        self.index += 1
        now_ms = self.log // MILLISECOND
        if (opens and not repeated) or path.endswith("/renew"):
            self.deadline = (now_ms + TTL_MS) * MILLISECOND
        deadline_ms = self.deadline // MILLISECOND
        ends = {"log_time_ms": now_ms, "deadline_ms": deadline_ms, "remaining_ms": deadline_ms - now_ms}
        headers = {
            "content-type": "application/json",
            "lockkeeper-index": str(self.index),
            "lockkeeper-cluster": self.cluster,
        }
        if path.endswith(("/sessions", "/renew")):
            fields = {"session": "1", "handle": "h", "ttl_ms": TTL_MS, "attempt": body.get("attempt", 0), **ends}
        elif path.endswith("/acquire"):
            fields = {"state": "granted", "token": "1", "lock": "a", "request": "1", "waited_ms": 0}
        else:
            fields = {"valid": True, "closed": True}
        return Head(200, headers), json.dumps(fields).encode()

    def exchange(self, step: Exchange) -> tuple[Head, bytes]:
        """Delivers a request and its answer as the next plan says."""
        kind, there, back = self.plans.pop(0) if self.plans else ("answered", 1, 1)
        if kind == "refused":
            self.advance(there * MILLISECOND)
            raise NotSent("refused")
        path, _, payload = step.request.partition(b"\r\n\r\n")
        late = step.timeout / self.rate
        self.advance(int(min(there * MILLISECOND, late)))
        if kind == "lost" or late <= there * MILLISECOND:
            self.advance(max(0, int(late) - there * MILLISECOND))
            raise NotAnswered("lost")
        answer = self.answer(path.split(b" ")[1].decode(), json.loads(payload or b"{}"))
        self.advance(int(min(back * MILLISECOND, max(0, late - there * MILLISECOND))))
        if kind == "answer lost" or late <= (there + back) * MILLISECOND:
            raise NotAnswered("the answer is lost")
        return answer

    def run(self, steps: Steps[Any], until: int) -> Any:
        """Performs the steps of an operation until it ends or real time has passed."""
        value: Any = None
        error: BaseException | None = None
        while self.real < until:
            try:
                step = steps.throw(error) if error else steps.send(value)
            except StopIteration as end:
                return end.value
            value = error = None
            try:
                if isinstance(step, Exchange):
                    value = self.exchange(step)
                else:
                    assert isinstance(step, Pause)
                    self.advance(int(step.duration / self.rate) + 1)
            except (NotSent, NotAnswered) as failed:
                error = failed
        steps.close()
        return None


PLANS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "answered", "answered", "lost", "answer lost", "refused"]),
        st.integers(min_value=0, max_value=4_000),
        st.integers(min_value=0, max_value=4_000),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(st.floats(min_value=0.9901, max_value=1.01), PLANS, st.lists(st.integers(min_value=0, max_value=1), max_size=8))
def test_a_hold_is_lost_before_its_session_ends(
    rate: float, plans: list[tuple[str, int, int]], stalls: list[int]
) -> None:
    """Under delays, losses, stalls of the cluster and clocks that differ by 1 %, no belief outlives the session."""
    world = World(rate, [("answered", 1, 1), ("answered", 1, 1), *plans], stalls)
    link = Link(Endpoints(["http://a:1", "http://b:1"]), "default", None, world.clock, 5 * SECOND)
    session = world.run(open_session(link, Metadata("w", "h"), None, False), 60 * SECOND)
    hold = world.run(acquire(session, LockRequest(("a",), 0), Metadata("w", "h")), 60 * SECOND)
    world.believes = lambda: hold.lost is None
    world.run(keep(session), 60 * SECOND)
    world.advance(10 * SECOND)
    assert not world.overlaps


def test_without_failures_the_hold_is_kept() -> None:
    """The simulation can show a hold that is kept: an hour of answered renewals ends nothing."""
    world = World(0.995, [], [])
    link = Link(Endpoints(["http://a:1"]), "default", None, world.clock, 5 * SECOND)
    session = world.run(open_session(link, Metadata("w", "h"), None, False), 60 * SECOND)
    hold = world.run(acquire(session, LockRequest(("a",), 0), Metadata("w", "h")), 60 * SECOND)
    world.run(keep(session), 600 * SECOND)
    assert hold.lost is None and hold.valid_for > 1 and not world.ended


@pytest.mark.parametrize("late_ms", [TTL_MS * 3 // 4, 2 * TTL_MS])
def test_a_session_whose_first_answer_was_lost_is_kept(late_ms: int) -> None:
    """A repeat gets the end that the first attempt set: the session is renewed at once, or opened again after it."""
    world = World(1.0, [("answer lost", 1, late_ms)], [])
    link = Link(Endpoints(["http://a:1"]), "default", None, world.clock, late_ms * MILLISECOND * 2)
    session = world.run(open_session(link, Metadata("w", "h"), TTL_MS * MILLISECOND, False), 60 * SECOND)
    world.run(keep(session), 60 * SECOND)
    assert session.ended is None and not world.ended


def test_answers_of_a_restored_cluster_are_not_believed() -> None:
    """After a restore the nodes answer with another id: the hold ends at its own deadline, and nothing is inherited."""
    world = World(1.0, [], [])
    link = Link(Endpoints(["http://a:1"]), "default", None, world.clock, SECOND)
    session = world.run(open_session(link, Metadata("w", "h"), None, False), 60 * SECOND)
    hold = world.run(acquire(session, LockRequest(("a",), 0), Metadata("w", "h")), 60 * SECOND)
    world.cluster = "restored"
    begun = world.clock()
    world.run(keep(session), 60 * SECOND)
    assert hold.lost is not None and hold.lost.reason == "restored"
    assert world.clock() - begun < 2 * TTL_MS * MILLISECOND
    with pytest.raises(Unavailable, match="restored"):
        world.run(open_session(link, Metadata("w", "h"), None, False), 60 * SECOND)


def test_no_wall_clock_is_read() -> None:
    """The client reads no clock that can be set, and on Linux the one that counts suspend."""
    source = "".join(path.read_text() for path in Path(errors.__file__).parent.parent.rglob("*.py"))
    assert not re.search(r"time\.time(_ns)?\(|datetime\.now|utcnow", source)
    if sys.platform == "linux":
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        assert 0 <= boot_clock() - boot < SECOND


TIMES = st.integers(min_value=0, max_value=100_000)


@settings(deadline=None)
@given(
    st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES), min_size=1, max_size=20),
    st.floats(min_value=0.9901, max_value=1.01),
    st.randoms(use_true_random=False),
)
def test_no_order_of_answers_lengthens_the_validity(
    rows: list[tuple[int, int, int, int]], rate: float, random: Any
) -> None:
    """Answers in any order prove no later end than the true one, and a passed end remains passed."""
    proofs: list[Proof] = []
    log_ms = real_ms = applied_ms = ttl = 0
    for index, (apart, delay, behind, ttl) in enumerate(rows):
        real_ms = applied_ms + apart
        # Log time never runs faster than real time.
        log_ms += min(apart + delay, behind)
        applied_ms = real_ms + delay
        proofs.append(Proof(int(real_ms * MILLISECOND * rate), index, log_ms, log_ms + ttl))
    random.shuffle(proofs)
    validity = Validity(proofs[0])
    for proof in proofs[1:]:
        validity.add(proof, min(0, validity.until - 1))
    assert validity.until <= (applied_ms + ttl) * MILLISECOND * rate + 1
    end = validity.until
    assert not validity.is_passed(end - 1) and validity.is_passed(end)
    validity.add(Proof(end + SECOND, 10**6, 10**9, 10**10), end + 1)
    assert validity.is_passed(0)


def test_a_seed_of_the_program_is_its_own() -> None:
    """Programs that seed `random` alike ask different nodes first, pause differently, and keep their own numbers."""

    def chosen() -> list[int]:
        random.seed(7)
        endpoints = [Endpoints(f"http://h:{port}" for port in range(1, 100)).current.port for _ in range(8)]
        pauses = [Backoff(lambda: 0).pause(Unavailable("no node")) for _ in range(8)]
        return endpoints + pauses

    random.seed(7)
    expected = random.random()
    assert chosen() != chosen()
    assert random.random() == expected
