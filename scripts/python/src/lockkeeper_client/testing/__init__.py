"""A real cluster for tests: three nodes in one process that keep everything in memory."""

import os
import re
import shutil
import subprocess
import tempfile
from types import TracebackType
from typing import Any, Self

from ..aio import AsyncClient
from ..sync import Client

_HTTP_LINE = re.compile(r"^ +http +(http\S+)$")


class Cluster:
    """Runs `lockkeeper dev` with free ports until `close`, or until the end of a `with` block.

    `binary` is the path of the program; by default LOCKKEEPER_BIN, or `lockkeeper` on the PATH.
    """

    def __init__(self, nodes: int = 3, *, binary: str | None = None) -> None:
        program = binary or os.environ.get("LOCKKEEPER_BIN") or shutil.which("lockkeeper")
        if program is None:
            raise FileNotFoundError("lockkeeper is not on the PATH: name it in LOCKKEEPER_BIN")
        options = ["--ephemeral", "--profile", "fast", "--port-base", "0", "--nodes", str(nodes)]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [program, "dev", *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            self.endpoints = self._read_endpoints()
            """The HTTP address of each node."""
            with self.client(request_timeout=30) as client:
                client.call("/v1/status")
        except BaseException:
            self.close()
            raise

    def client(self, **options: Any) -> Client:
        """Returns a client of the cluster, with the options of `Client`."""
        return Client(self.endpoints, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """Returns a client of the cluster for asyncio, with the options of `AsyncClient`."""
        return AsyncClient(self.endpoints, **options)

    def close(self) -> None:
        """Kills the cluster. It keeps nothing, so it has nothing to save."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_endpoints(self) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (found := _HTTP_LINE.match(line)) is not None:
                return found[1].split(",")
        self._process.wait()
        self._errors.seek(0)
        raise RuntimeError(f"lockkeeper dev did not start: {self._errors.read().decode(errors='replace')}")
