"""The clients over TLS, at a cluster with its own authority."""

import asyncio
import random
import ssl
import subprocess
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
        async with AsyncClient(url, request_timeout=1) as lk:
            await lk.lock("a").acquire()

    with Client(url, request_timeout=1) as lk, pytest.raises(Unavailable, match="certificate"):
        lk.lock("a").acquire()
    with pytest.raises(Unavailable, match="certificate"):
        asyncio.run(main())
