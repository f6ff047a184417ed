"""Tokens of clients, at a cluster that knows its callers."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import Nodes, await_true

from lockkeeper_client import AsyncClient, Client, InvalidArgument, NotPermitted, Unauthenticated

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
        Client(guarded.http, token_file=file, ttl=3) as lk,
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
