"""What happens to open sessions when the process forks or exits."""

import atexit
import os
import ssl
import weakref
from typing import Protocol

from ._threads import Threads
from .core.keep import CLOSE_WAIT, close
from .core.session import Session


class Forkable(Protocol):
    """Has resources that the child of a fork must not share."""

    def forked(self) -> None:
        """Replaces them in the child."""


_open: dict[Session, ssl.SSLContext | None] = {}
_forkable: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def opened(session: Session, tls: ssl.SSLContext | None) -> None:
    """Closes the session at the exit of the interpreter, unless it has ended before."""
    for ended in [known for known in list(_open) if known.ended is not None]:
        _open.pop(ended, None)
    _open[session] = tls


def closed(session: Session) -> None:
    """Forgets a session that was closed."""
    _open.pop(session, None)


def replaced_in_child(resource: Forkable) -> None:
    """Calls `forked` of the resource in the child of each fork."""
    _forkable.add(resource)


def _forked() -> None:
    for session in list(_open):
        session.forked()
    _open.clear()
    for resource in list(_forkable):
        resource.forked()


def _exiting() -> None:
    """Closes the open sessions, all of them within 2 s."""
    for session, tls in list(_open.items()):
        if session.ended is None:
            clock = session.link.clock
            deadline = _exit_begun.setdefault("at", clock()) + CLOSE_WAIT
            session.end("closed", "the interpreter exits")
            Threads(clock, tls).run(close(session, max(1, deadline - clock())))


_exit_begun: dict[str, int] = {}
atexit.register(_exiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
