"""Upgrades that are cancelled or not answered: the hold gets the token that the cluster granted."""

import asyncio
import json
from typing import Any

import pytest
from nodes import PATIENCE, Nodes, turns

from lockkeeper_client import AsyncClient, Error, KindMismatch, NotHeld, OutcomeUnknown
from lockkeeper_client.core.claim import change, upgrade
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.errors import CLASSES
from lockkeeper_client.core.holds import HoldState
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import look_for_losses
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.release import release
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, NotAnswered, Pause, Steps

SHARED, EXCLUSIVE = "7", "9"
INTERRUPTIONS = [asyncio.CancelledError, KeyboardInterrupt, NotAnswered]


class Cluster:
    """A cluster with one shared hold, which grants an upgrade at once. It performs the steps of operations.

    Each request whose path is in `broken` is executed, and then this error is raised in place of its answer. A path in
    `refusals` has the words with which nodes refuse its next requests; None lets one pass. The answer to the next
    request of each path in `lost` does not arrive.
    """

    def __init__(self) -> None:
        self.token: str | None = SHARED
        self.broken: dict[str, type[BaseException]] = {}
        self.refusals: dict[str, list[str | None]] = {}
        self.lost: list[str] = []
        self.refused = self.queued = False
        self.garbled: list[str] = []
        """Paths whose next grant has no token."""
        self.paths: list[str] = []
        self.background: list[Steps[Any]] = []
        self._now = 0
        link = Link(Endpoints(["http://a:1"]), "default", None, lambda: self._now, SECOND)
        link.spawn = self.background.append
        opened = {"session": "1", "ttl_ms": 60_000, "log_time_ms": 1_000, "deadline_ms": 61_000}
        self.session = Session(link, "h", Answer(0, Head(201, {}), opened))
        self.hold = HoldState(self.session, {"a": int(SHARED)}, None)
        self.session.add(self.hold)

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
            if isinstance(step, Pause):
                self._now += step.duration
                continue
            assert isinstance(step, Exchange)
            try:
                value = self._exchange(step)
            except BaseException as failed:
                error = failed

    def settle(self) -> None:
        """Performs the operations in the background. They are answered."""
        self.broken = {}
        while self.background:
            self.run(self.background.pop(0))

    def _exchange(self, step: Exchange) -> tuple[Head, bytes]:
        head, _, payload = step.request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode().rsplit("/", 1)[1]
        self.paths.append(path)
        self._now += SECOND // 10
        answer = self._answer(path, json.loads(payload))
        if path in self.broken:
            raise self.broken[path]("a test")
        if path in self.lost:
            self.lost.remove(path)
            raise NotAnswered("a test")
        if path in self.garbled:
            self.garbled.remove(path)
            answer.pop("token")
        kind = "application/problem+json" if "error" in answer else "application/json"
        return Head(409 if "error" in answer else 200, {"content-type": kind}), json.dumps(answer).encode()

    def _answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        refusals = self.refusals.get(path)
        if refusals and (word := refusals.pop(0)) is not None:
            return {"error": word, "detail": "a test"}
        if path == "upgrade":
            if self.refused:
                return {"error": "kind-mismatch", "detail": "a test"}
            self.token = EXCLUSIVE
            # The grant of a queued upgrade comes after the last poll.
            return {"state": "queued"} if self.queued else {"state": "granted", "token": EXCLUSIVE}
        if path == "withdraw":
            upgraded = self.token == EXCLUSIVE
            return {"state": "granted", "token": EXCLUSIVE} if upgraded else {"state": "withdrawn"}
        if path == "check":
            return {"valid": body["token"] == self.token}
        if body["token"] != self.token:
            return {"error": "not-held", "detail": "a test"}
        if path == "release":
            self.token = None
        return {"released": True}


@pytest.fixture
def cluster() -> Cluster:
    """A cluster of its own for each test."""
    return Cluster()


def _interrupt(cluster: Cluster, interruption: type[BaseException]) -> None:
    """Upgrades the hold. The cluster grants it, and the caller does not get the answer."""
    cluster.broken = {"upgrade": interruption}
    with pytest.raises(OutcomeUnknown if interruption is NotAnswered else interruption):
        cluster.run(upgrade(cluster.hold, 0))
    cluster.broken = {}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_the_hold_gets_the_token_of_an_interrupted_upgrade(cluster: Cluster, interruption: type[BaseException]) -> None:
    """A granted upgrade cannot be withdrawn: its token arrives in the background, and no loss is found before."""
    _interrupt(cluster, interruption)
    cluster.run(look_for_losses(cluster.session))
    assert (cluster.hold.lost, cluster.hold.token) == (None, int(SHARED))
    cluster.settle()
    assert (cluster.hold.lost, cluster.hold.token) == (None, int(EXCLUSIVE))
    assert not cluster.hold.upgrades, "losses are looked for again"
    cluster.run(release(cluster.hold))
    assert cluster.token is None


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_a_release_waits_for_the_token_of_an_upgrade(cluster: Cluster, interruption: type[BaseException]) -> None:
    """A release right after the interruption, as at the end of a block, releases what the cluster granted."""
    _interrupt(cluster, interruption)
    cluster.run(release(cluster.hold))
    assert cluster.token is None
    cluster.settle()
    assert cluster.hold.released and cluster.hold.lost is None


@pytest.mark.parametrize("path", ["withdraw", "release"])
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_interrupted_release_continues_after_an_upgrade(
    cluster: Cluster, interruption: type[BaseException], path: str
) -> None:
    """The release is interrupted, too. The background finds the token and releases the hold."""
    _interrupt(cluster, asyncio.CancelledError)
    cluster.broken = {path: interruption}
    with pytest.raises(OutcomeUnknown if interruption is NotAnswered else interruption):
        cluster.run(release(cluster.hold))
    cluster.background.reverse()
    cluster.broken = {}
    for steps in cluster.background:
        try:
            cluster.run(steps)
        except Error as error:
            assert path == "release" and error.word == "not-held", "the first copy has released it"
    assert cluster.token is None


def test_a_change_has_the_token_of_an_interrupted_upgrade(cluster: Cluster) -> None:
    """The next change of the hold names the token that the cluster knows."""
    _interrupt(cluster, asyncio.CancelledError)
    cluster.run(change(cluster.hold, "value", value="v"))
    assert cluster.hold.token == int(EXCLUSIVE)


def test_an_upgrade_whose_grant_is_not_understood_is_withdrawn(cluster: Cluster) -> None:
    """The grant and the answers to two withdrawals have no token: the withdrawal is repeated until one has it.

    The hold is never found lost, and its number stays open, because the cluster must not forget the outcome.
    """
    cluster.garbled = ["upgrade", "withdraw", "withdraw"]
    with pytest.raises(OutcomeUnknown, match="no number token"):
        cluster.run(upgrade(cluster.hold, 0))
    cluster.run(look_for_losses(cluster.session))
    number, answered_below = cluster.session.draw()
    cluster.session.finish(number)
    assert answered_below < number and cluster.hold.lost is None
    cluster.settle()
    assert not cluster.garbled and not cluster.hold.upgrades
    assert (cluster.hold.lost, cluster.hold.token) == (None, int(EXCLUSIVE))


def test_an_upgrade_that_is_granted_at_the_end_of_its_wait_succeeds(cluster: Cluster) -> None:
    """The wait is over, and the withdrawal answers that the upgrade was granted: the caller gets the grant."""
    cluster.queued = True
    cluster.run(upgrade(cluster.hold, 0))
    assert cluster.paths == ["upgrade", "withdraw"]
    assert cluster.hold.token == int(EXCLUSIVE) and not cluster.hold.upgrades


def test_a_refused_upgrade_is_not_withdrawn(cluster: Cluster) -> None:
    """A refusal is final: the hold remains as it is, and nothing is in doubt."""
    cluster.refused = True
    with pytest.raises(KindMismatch):
        cluster.run(upgrade(cluster.hold, 0))
    assert not cluster.background and not cluster.hold.upgrades and cluster.hold.token == int(SHARED)


@pytest.mark.parametrize("word", ["unauthenticated", "not-permitted", "internal"])
def test_an_upgrade_that_a_node_refuses_after_its_place_is_withdrawn(cluster: Cluster, word: str) -> None:
    """A node refuses a poll and the first withdrawals. The hold is never found lost, and its release frees it."""
    cluster.queued = True
    cluster.refusals = {"upgrade": [None, word], "withdraw": [word, word]}
    with pytest.raises(OutcomeUnknown):
        cluster.run(upgrade(cluster.hold, 60 * SECOND))
    with pytest.raises(CLASSES[word]):
        cluster.run(release(cluster.hold))
    assert not cluster.hold.released
    cluster.settle()
    assert (cluster.hold.lost, cluster.hold.token) == (None, int(EXCLUSIVE))
    cluster.run(release(cluster.hold))
    assert cluster.token is None and cluster.hold.lost is None


@pytest.mark.parametrize("word", ["unauthenticated", "not-permitted", "internal"])
def test_a_release_that_is_refused_after_a_lost_answer_is_in_doubt(cluster: Cluster, word: str) -> None:
    """The first attempt releases the hold and its answer is lost; a node refuses the second. No loss is found."""
    cluster.lost = ["release"]
    cluster.refusals = {"release": [None, word, word]}
    with pytest.raises(OutcomeUnknown):
        cluster.run(release(cluster.hold))
    assert cluster.token is None
    cluster.run(look_for_losses(cluster.session))
    assert cluster.hold.released and cluster.hold.lost is None
    number, answered_below = cluster.session.draw()
    assert answered_below < number, "the release still has its number"
    cluster.session.finish(number)
    assert not cluster.refusals["release"][1:]
    (later,) = cluster.background
    with pytest.raises(NotHeld):
        cluster.run(later)
    assert not cluster.refusals["release"], "the release is repeated after a refusal"


@pytest.mark.parametrize("word", ["unauthenticated", "not-permitted", "internal"])
def test_a_change_that_is_refused_after_a_lost_answer_is_in_doubt(cluster: Cluster, word: str) -> None:
    """The first attempt may have changed the hold. A refusal of the first attempt is raised as it is.

    An internal error of the first attempt is in doubt itself.
    """
    cluster.lost = ["value"]
    cluster.refusals = {"value": [None, word, word]}
    with pytest.raises(OutcomeUnknown):
        cluster.run(change(cluster.hold, "value", value="v"))
    with pytest.raises(OutcomeUnknown if word == "internal" else CLASSES[word]):
        cluster.run(change(cluster.hold, "value", value="v"))
    assert not cluster.background and cluster.hold.lost is None


def test_a_cancelled_upgrade_at_real_nodes(nodes: Nodes) -> None:
    """An upgrade is cancelled at each of its steps: the hold has the token of the cluster, and its release frees it."""

    async def holders(lk: AsyncClient, lock: str) -> list[int]:
        return [int(row["token"]) for row in (await lk.show(lock))["holders"]]

    async def cancelled_at(lk: AsyncClient, other: AsyncClient, step: int, wait: bool) -> bool:
        async with lk.lock("upgrade-cancel", shared=True) as hold:
            task = asyncio.create_task(hold.upgrade())
            for _ in range(step):
                await asyncio.sleep(0)
            finished = task.done()
            task.cancel()
            await asyncio.wait([task])
            end = asyncio.get_running_loop().time() + PATIENCE
            while wait and (hold._state.upgrades or await holders(other, "upgrade-cancel") != [hold.token]):  # pyright: ignore[reportPrivateUsage]
                assert asyncio.get_running_loop().time() < end and hold.lost is None, (hold, step)
                await asyncio.sleep(0.01)
        assert await holders(other, "upgrade-cancel") == [], step
        return finished

    async def main() -> None:
        async with nodes.async_client() as lk, nodes.async_client() as other:
            for wait in (True, False):
                for step in turns():
                    if await cancelled_at(lk, other, step, wait):
                        assert step > 3
                        break

    asyncio.run(main())
