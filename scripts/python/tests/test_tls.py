"""The clients over TLS, at a cluster with its own authority."""

import asyncio
import os
import random
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import binary

from lockkeeper_client import AsyncClient, Client, Unavailable


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Runs a cluster that requires TLS. Returns the address of its first node, and the folder of its certificates."""
    folder = tmp_path_factory.mktemp("tls")
    base = random.randrange(20_100, 32_000, 100)
    command = [binary(), "dev", "--tls", "--dir", str(folder), "--port-base", str(base), "--profile", "fast"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("leads" in line for line in process.stdout), "the cluster did not start"
            yield f"https://127.0.0.1:{base + 21}", folder / "certs"
        finally:
            process.kill()


def context(certs: Path) -> ssl.SSLContext:
    """Returns a context that trusts the cluster's authority, with the certificate of a client."""
    made = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    made.load_cert_chain(certs / "client-dev.pem", certs / "client-dev.key")
    return made


def test_threads_and_tasks_use_tls(certs: tuple[str, Path]) -> None:
    """Both clients take locks over TLS, and share them."""
    url, folder = certs

    async def main() -> int:
        async with AsyncClient(url, tls=context(folder)) as lk, lk.lock("a", wait=30) as hold:
            return hold.token

    with Client(url, tls=context(folder)) as lk:
        with lk.lock("a", wait=30) as hold:
            hold.check()
        assert hold.token < asyncio.run(main())


def test_an_unknown_authority_is_refused(certs: tuple[str, Path]) -> None:
    """Without the authority of the cluster nothing is sent, and the error names the certificate."""
    url, _ = certs

    async def main() -> None:
        async with AsyncClient(url) as lk:
            await lk.lock("a").acquire()

    with Client(url) as lk, pytest.raises(Unavailable, match="certificate"):
        lk.lock("a").acquire()
    with pytest.raises(Unavailable, match="certificate"):
        asyncio.run(main())


CHILD_OF_A_FORK = """
import asyncio, gc, os, ssl, sys, time
from lockkeeper_client import AsyncClient
folder = sys.argv[1]
scheme, serving, trusting = "http", None, None
if folder:
    scheme, serving = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(folder + "/node-1.pem", folder + "/node-1.key")
    trusting = ssl.create_default_context(cafile=folder + "/ca.pem")

async def main():
    streams, ends, ended = [], 0, asyncio.Event()
    async def node(reader, writer):
        nonlocal ends
        try:
            while b"/watch?" not in await reader.readuntil(b"\\r\\n\\r\\n"):
                writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/json\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n\\r\\n" + event(1))
            streams.append(writer)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        ends += 1
        if ends == 2:
            ended.set()
    def event(number):
        return b'data: {"position": "%d.0", "cluster_id": "c"}\\n\\n' % number
    server = await asyncio.start_server(node, "127.0.0.1", 0, ssl=serving)
    aio = AsyncClient(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", tls=trusting)
    await aio.call("locks")
    watch = await aio.watch(after="0.0")
    print((await anext(watch))["position"])
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    done, write = os.pipe()
    child = os.fork()
    if child == 0:
        reading.cancel()
        watch.close()
        del reading, watch, aio
        gc.collect()
        os.write(write, b"1")
        time.sleep(600)
    os.read(done, 1)
    try:
        streams[0].write(event(2))
        print((await asyncio.wait_for(reading, 30))["position"])
        await aio.call("locks")
        print(ends)
        await aio.close()
        await asyncio.wait_for(ended.wait(), 30)
        print("ended")
    finally:
        os.kill(child, 9)

asyncio.run(main())
"""
"""A client and its node at once. Its child drops what it inherited, and lives on."""


@pytest.mark.parametrize("tls", [False, True])
def test_the_child_of_a_fork_keeps_no_connection_of_asyncio(certs: tuple[str, Path], tls: bool) -> None:
    """The watch and the idle connection of the parent still work, and end at the node when the parent closes them."""
    folder = str(certs[1]) if tls else ""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD_OF_A_FORK, folder],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            assert program.stdout is not None
            assert [program.stdout.readline().strip() for _ in range(4)] == ["1.0", "2.0", "0", "ended"]
        finally:
            # The child, too, has the output open.
            os.killpg(program.pid, signal.SIGKILL)
