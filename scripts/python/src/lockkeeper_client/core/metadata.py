"""What a client shows about itself to all others."""

import getpass
import os
import socket
from dataclasses import dataclass, replace
from typing import Any

PART_BYTES_MAX = 64


@dataclass(frozen=True, slots=True)
class Metadata:
    """Who works on which host and why, as all clients see it."""

    who: str
    host: str
    why: str | None = None

    def because(self, why: str | None) -> "Metadata":
        """Returns the same metadata with another purpose, if one is given."""
        return self if why is None else replace(self, why=why)

    def fields(self) -> dict[str, Any]:
        """Returns the fields of a request. The process is the one that sends it, also after a fork."""
        fields: dict[str, Any] = {"who": self.who, "host": self.host, "pid": os.getpid()}
        return fields if self.why is None else {**fields, "why": self.why}


def own_metadata(who: str | None) -> Metadata:
    """Returns the metadata of this process: by default user and host."""
    host = _shortened(socket.gethostname())
    try:
        user = os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        user = f"uid{os.getuid()}" if hasattr(os, "getuid") else "python"
    return Metadata(who or f"{_shortened(user)}@{host}", host)


def _shortened(text: str) -> str:
    """Returns a name from the environment without control characters, and not longer than its bound."""
    shown = "".join(char for char in text if char.isprintable())
    return shown.encode()[:PART_BYTES_MAX].decode(errors="ignore")
