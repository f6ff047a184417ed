"""Tokens of clients, at a cluster that knows its callers."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import AsyncClient, Client, InvalidArgument, NotPermitted, SessionEnded, Unauthenticated
from lockkeeper_client.core.clock import SECOND
from lockkeeper_client.core.endpoints import Endpoints
from lockkeeper_client.core.holds import HoldState
from lockkeeper_client.core.http import Head
from lockkeeper_client.core.keep import close
from lockkeeper_client.core.link import Answer, Link
from lockkeeper_client.core.release import leave, release
from lockkeeper_client.core.session import Session
from lockkeeper_client.core.steps import Exchange, Pause, Steps
from lockkeeper_client.core.token import Token

TOKEN = f"lkt_{'a' * 49}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Nodes]:
    """Three node processes with rules. The principal `ci` may lock the names that begin with `ci-`."""
    with Nodes(rules=True) as started:
        yield started


def _token(nodes: Nodes, file: Path) -> str:
    """Writes a new token of `ci` to a file, and returns its id."""
    file.unlink(missing_ok=True)
    made = nodes.run("--json", "auth", "token", str(nodes.rules), "ci", "--out", str(file))
    assert made.returncode == 0, made.stderr
    nodes.reload()
    return str(json.loads(made.stdout)["id"])


def _works(client: Client) -> bool:
    """Whether the nodes know the token of a client by now: they read their rules again soon after a signal."""
    try:
        client.lock("ci-probe", wait=0).acquire().release()
    except Unauthenticated:
        return False
    return True


def test_a_token_proves_the_client(guarded: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a token a client is refused, and with one it may do what the rules permit, and nothing else."""
    file = tmp_path / "ci.token"
    _token(guarded, file)
    with Client(guarded.http) as lk:
        with pytest.raises(Unauthenticated) as unknown:
            lk.lock("ci-a").acquire()
        assert (unknown.value.word, unknown.value.advice) == ("unauthenticated", "give_up")
    with Client(guarded.http, token_file=file) as lk:
        await_true(lambda: _works(lk), "the new token is known")
        with lk.lock("ci-a") as hold:
            assert lk.check("ci-a", hold.token)
        with pytest.raises(NotPermitted):
            lk.lock("other").acquire()
        with pytest.raises(NotPermitted):
            lk.call("break", lock="ci-a", token=1, why="a test")
    with Client(guarded.http, token=file.read_text().strip()) as lk, lk.lock("ci-a"):
        assert file.read_text().strip() not in repr(lk)
    with Client(guarded.http, token=TOKEN) as lk, pytest.raises(Unauthenticated):
        lk.lock("ci-a").acquire()
    monkeypatch.setenv("LOCKKEEPER_AUTH_TOKEN_FILE", str(file))

    async def main() -> None:
        async with AsyncClient(guarded.http) as lk:
            async with lk.lock("ci-a") as hold:
                hold.check()
            with pytest.raises(NotPermitted):
                await lk.lock("other").acquire()

    asyncio.run(main())


def test_a_rotated_token_is_read_again(guarded: Nodes, tmp_path: Path) -> None:
    """A client whose token is replaced and then revoked keeps its hold, and its next calls show the new token."""
    file = tmp_path / "ci.token"
    old = _token(guarded, file)
    with (
        Client(guarded.http, token_file=file, ttl=4) as lk,
        Client(guarded.http, token=file.read_text().strip()) as late,
    ):
        await_true(lambda: _works(lk), "the first token is known")
        with lk.lock("ci-rotated") as hold:
            _token(guarded, tmp_path / "next")
            os.replace(tmp_path / "next", file)
            await_true(lambda: _works(lk), "the second token is known")
            revoked = guarded.run("auth", "revoke", str(guarded.rules), old)
            assert revoked.returncode == 0, revoked.stderr
            guarded.reload()
            await_true(lambda: not _works(late), "the first token is refused")
            # The renewals that keep the hold from here on show the new token.
            answered = hold._state.session.validity.answered  # pyright: ignore[reportPrivateUsage]
            ttl = hold._state.session.ttl  # pyright: ignore[reportPrivateUsage]
            await_true(
                lambda: answered + ttl < hold._state.session.validity.answered,  # pyright: ignore[reportPrivateUsage]
                "renewals for longer than the TTL",
            )
            assert lk.check("ci-rotated", hold.token)


def test_an_unfit_token_is_named(tmp_path: Path) -> None:
    """A token that cannot be used is refused before anything is sent, with what to do, and never shown."""
    here, file = "http://127.0.0.1:1", tmp_path / "token"
    with pytest.raises(InvalidArgument, match="cannot be read"):
        Client(here, token_file=file)
    file.write_text(TOKEN)
    file.chmod(0o644)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        Client(here, token_file=file)
    file.chmod(0o600)
    Client(here, token_file=file)
    with pytest.raises(InvalidArgument, match="got both"):
        Client(here, token=TOKEN, token_file=file)
    for elsewhere in ("http://10.0.0.1:7621", "http://db1.example:7621"):
        with pytest.raises(InvalidArgument, match="https or to this machine"):
            Client(elsewhere, token_file=file)
    for permitted in ("https://10.0.0.1:7621", "http://localhost:7621", "http://[::1]:7621"):
        Client(permitted, token=TOKEN)
    file.write_text("secret")
    with pytest.raises(InvalidArgument, match="auth token") as unfit:
        Client(here, token_file=file)
    assert "secret" not in str(unfit.value)
    with pytest.raises(InvalidArgument) as unfit:
        Client(here, token="secret\r\nx: y")
    assert "secret" not in str(unfit.value)


class _Node:
    """Answers of nodes that know other tokens than the client shows, without a network."""

    def __init__(self, token: Token, refusals: int) -> None:
        self.now = 0
        self.refusals = refusals
        self.asked: list[tuple[str, bytes]] = []
        self.spawned: list[Steps[Any]] = []
        endpoints = Endpoints(["http://localhost:1", "http://localhost:2"])
        link = Link(endpoints, "default", token, lambda: self.now, 5 * SECOND)
        link.spawn = self.spawned.append
        opened = {"session": "1", "ttl_ms": 60_000, "log_time_ms": 1_000, "deadline_ms": 61_000}
        self.session = Session(link, "h", Answer(0, Head(201, {}), opened))
        self.hold = HoldState(self.session, {"a": 7}, None)
        self.session.add(self.hold)

    def run(self, steps: Steps[Any]) -> None:
        """Performs steps: refuses the first requests, and answers the others."""
        value: Any = None
        with suppress(StopIteration):
            while True:
                step = steps.send(value)
                value = None
                if isinstance(step, Pause):
                    self.now += step.duration
                    if (error := step.stop()) is not None:
                        steps.throw(error)
                    continue
                assert isinstance(step, Exchange)
                self.asked.append((str(step.endpoint), step.request.partition(b"\r\n\r\n")[2]))
                problem = {"error": "unauthenticated", "advice": "give_up", "detail": "who is this?"}
                status, body = (401, problem) if len(self.asked) <= self.refusals else (200, {"released": True})
                kind = "application/problem+json" if status == 401 else "application/json"
                value = (Head(status, {"content-type": kind}), json.dumps(body).encode())


def test_a_release_outlasts_nodes_that_do_not_know_a_new_token() -> None:
    """A release is repeated at other nodes, then in the background, and is the same request each time."""
    soon = _Node(Token(lambda: TOKEN, in_file=True), 1)
    soon.run(release(soon.hold))
    assert len(soon.asked) == 2 and {node for node, _ in soon.asked} == {"http://localhost:1", "http://localhost:2"}
    assert soon.hold.released and not soon.spawned
    late = _Node(Token(lambda: TOKEN, in_file=True), 1_000)
    with pytest.raises(Unauthenticated):
        late.run(release(late.hold))
    assert late.hold.released and len(late.spawned) == 1
    late.refusals = len(late.asked) + 3
    late.run(late.spawned[0])
    assert len(late.asked) == late.refusals + 1
    assert len({body for _, body in late.asked}) == 1
    left = _Node(Token(lambda: TOKEN, in_file=True), 1_000)
    left.run(leave(left.hold, None))
    assert left.hold.released and len(left.spawned) == 1
    with pytest.raises(SessionEnded):
        left.run(left.spawned[0])
    assert 59 * SECOND <= left.now < 62 * SECOND, "as long as the session may live"


def test_a_close_outlasts_a_node_that_does_not_know_a_new_token() -> None:
    """A close is repeated at another node, and gives up after its patience."""
    soon = _Node(Token(lambda: TOKEN, in_file=True), 1)
    soon.run(close(soon.session, 5 * SECOND))
    assert len(soon.asked) == 2 and {node for node, _ in soon.asked} == {"http://localhost:1", "http://localhost:2"}
    never = _Node(Token(lambda: TOKEN, in_file=True), 1_000)
    never.run(close(never.session, 2 * SECOND))
    assert 3 * SECOND // 2 <= never.now <= 2 * SECOND


@pytest.mark.parametrize("error", [None, KeyError("a test"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_refused_release_leaves_the_hold(error: BaseException | None) -> None:
    """A token that cannot change is refused at once. The hold is not released, and the session watches over it.

    The error of the body, or its cancellation, remains and gets a note.
    """
    node = _Node(Token(lambda: TOKEN, in_file=False), 1)
    if error is None:
        with pytest.raises(Unauthenticated):
            node.run(leave(node.hold, None))
    else:
        node.run(leave(node.hold, error))
        assert error.__notes__ == ["who is this?"]
    assert not node.hold.released and not node.spawned and node.session.watched() == [node.hold]
    node.run(release(node.hold))
    assert node.hold.released and node.session.watched() == []
