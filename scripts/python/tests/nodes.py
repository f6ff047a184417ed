"""Three node processes, which tests kill, stop and start again."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from lockkeeper_client import AsyncClient, Client

PATIENCE = 60.0
"""Seconds after which an awaited condition counts as impossible."""


def binary() -> str:
    """Returns the path of the program under test."""
    program = os.environ.get("LOCKKEEPER_BIN") or shutil.which("lockkeeper")
    assert program, "lockkeeper is not on the PATH: name it in LOCKKEEPER_BIN"
    return program


def await_true(condition: Callable[[], object], what: str) -> None:
    """Waits until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)


def turns() -> Iterator[int]:
    """Numbers of turns of a loop after which a test cancels a task: 1 to 10, and then each twice the one before.

    The number that a whole task takes grows with the latency of the cluster, and a test must not try all of them.
    """
    yield from range(1, 10)
    number = 10
    while True:
        yield number
        number *= 2


def _free_ports(count: int) -> list[int]:
    sockets: list[socket.socket] = []
    while len(sockets) < count:
        taken = socket.socket()
        try:
            # Above the ports of the tests in Rust (`tests/processes/ports.rs`), and below those that Linux gives away.
            taken.bind(("127.0.0.1", random.randrange(32_100, 32_760)))
        except OSError:
            taken.close()
            continue
        sockets.append(taken)
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


ROLE = """
[[role]]
name = "ci"
rules = [{ namespace = "default", prefix = "ci-", right = "lock" }]

[[principal]]
name = "ci"
roles = ["ci"]
"""
"""A principal that may lock the names that begin with `ci-`."""


class Nodes:
    """A cluster of three processes. It ends with its `with` block.

    With `rules`, each caller must prove that it is the principal `ops`, which may do everything, or `ci`.
    """

    def __init__(self, rules: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lockkeeper-python-"))
        ports = _free_ports(9)
        self._ports = {node: ports[3 * (node - 1) : 3 * node] for node in (1, 2, 3)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.rules = self.folder / "auth.toml" if rules else None
        self._header: dict[str, str] = {}
        if rules:
            self._make_rules()
        for node in self._ports:
            self.config(node).write_text(self._config(node))
            self.start(node)
        self.leader()

    @property
    def http(self) -> list[str]:
        """The HTTP address of each node."""
        return [f"http://127.0.0.1:{http}" for _, _, http in self._ports.values()]

    @property
    def endpoints(self) -> str:
        """The addresses for the command line."""
        return ",".join(f"127.0.0.1:{client}" for client, _, _ in self._ports.values())

    def client(self, ttl: float | None = None, request_timeout: float = 5, namespace: str | None = None) -> Client:
        """Returns a client of the cluster."""
        return Client(self.http, namespace, ttl=ttl, request_timeout=request_timeout)

    def async_client(self, ttl: float | None = None, request_timeout: float = 5) -> AsyncClient:
        """Returns a client of the cluster for asyncio."""
        return AsyncClient(self.http, ttl=ttl, request_timeout=request_timeout)

    def config(self, node: int) -> Path:
        """Returns the path of the config of a node."""
        return self.folder / f"n{node}.toml"

    def start(self, node: int) -> None:
        """Starts a node."""
        with (self.folder / f"n{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [binary(), "serve", "--config", str(self.config(node))],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def signal(self, node: int, number: signal.Signals) -> None:
        """Sends a signal to a node."""
        self._processes[node].send_signal(number)

    def reload(self) -> None:
        """Makes the nodes read their rules again, which they have done a moment later."""
        for node in self._processes:
            self.signal(node, signal.SIGHUP)

    def kill(self, node: int) -> None:
        """Kills a node with -9."""
        self._processes[node].kill()
        self._processes[node].wait()

    def stop(self, node: int) -> None:
        """Stops a node, which saves its state."""
        self.signal(node, signal.SIGTERM)
        assert self._processes[node].wait(PATIENCE) == 0

    def leader(self) -> int:
        """Waits until a node leads and returns its id."""
        found: list[int] = []

        def elected() -> bool:
            for url in self.http:
                try:
                    asked = urllib.request.Request(f"{url}/v1/status", headers=self._header)
                    with urllib.request.urlopen(asked, timeout=3) as answer:
                        leader = json.load(answer)["leader"]
                except (OSError, ValueError, KeyError):
                    continue
                if leader and self._processes[leader].poll() is None:
                    found.append(leader)
                    return True
            return False

        await_true(elected, "a leader")
        return found[-1]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the program at this cluster."""
        environment = {**os.environ, "LOCKKEEPER_ENDPOINTS": self.endpoints}
        return subprocess.run([binary(), *command], env=environment, capture_output=True, text=True, timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_rules(self) -> None:
        file, token = str(self.rules), self.folder / "ops.token"
        for command in (["init", file, "--admin", "ops"], ["token", file, "ops", "--out", str(token)]):
            subprocess.run([binary(), "auth", *command], check=True, capture_output=True, timeout=PATIENCE)
        with open(file, "a") as rules:
            rules.write(ROLE)
        self._header = {"authorization": f"Bearer {token.read_text().strip()}"}

    def _config(self, node: int) -> str:
        client, peer, http = self._ports[node]
        members = "".join(
            f'[[member]]\nid = {id}\nclient = "127.0.0.1:{ports[0]}"\npeer = "127.0.0.1:{ports[1]}"\n'
            for id, ports in self._ports.items()
        )
        return (
            f'cluster = "python"\nnode = {node}\ndata = "{self.folder}/n{node}"\n'
            f'[listen]\nclient = "127.0.0.1:{client}"\npeer = "127.0.0.1:{peer}"\nhttp = "127.0.0.1:{http}"\n'
            f'{members}[timing]\nprofile = "fast"\n'
            + (
                ""
                if self.rules is None
                else f'[auth]\nfile = "{self.rules}"\n[audit]\nfile = "{self.folder}/audit-{node}.jsonl"\n'
            )
        )
