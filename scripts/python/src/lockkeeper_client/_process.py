"""What happens to open sessions when the process forks or exits."""

import atexit
import os
import ssl
import weakref
from typing import Protocol

from ._threads import Threads
from .core import keep
from .core.keep import CLOSE_WAIT
from .core.session import Session
from .core.steps import Steps


class Forkable(Protocol):
    """Has resources that the child of a fork must not share."""

    def forked(self) -> None:
        """Replaces them in the child."""


_open: dict[Session, ssl.SSLContext | None] = {}
"""The sessions that may be open in the cluster, also while they are closed."""
_forkable: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def opened(session: Session, tls: ssl.SSLContext | None) -> None:
    """Closes the session at the exit of the interpreter, unless it has ended or was closed before."""
    for known in list(_open):
        # A close that was cancelled with its loop is never answered, but its session expires.
        passed = known.validity.is_passed(known.link.clock())
        if passed or not (known.ended is None or _closes(known)):
            _open.pop(known, None)
    _open[session] = tls


def is_open(session: Session) -> bool:
    """Whether a session may be open in the cluster, and this process is to close it."""
    return session in _open


def close(session: Session, patience: int | None = None) -> Steps[None]:
    """Closes an ended session in the cluster. It stays known until that is answered, or given up after `patience` ns.

    The default is the request timeout of its client.
    """
    if is_open(session) and _closes(session):
        yield from keep.close(session, session.link.request_timeout if patience is None else patience)
    _open.pop(session, None)


def _closes(session: Session) -> bool:
    """Whether the program has closed the session, so that its end is not the cluster's."""
    end = session.ended
    return end is not None and end.reason == "closed"


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
    """Closes the sessions that may be open, all of them within 2 s: the newest first, as older ones may be gone."""
    for session, tls in reversed(list(_open.items())):
        clock = session.link.clock
        deadline = _exit_begun.setdefault("at", clock()) + CLOSE_WAIT
        session.end("closed", "the interpreter exits")
        Threads(clock, tls).run(close(session, max(1, deadline - clock())))


_exit_begun: dict[str, int] = {}
atexit.register(_exiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
