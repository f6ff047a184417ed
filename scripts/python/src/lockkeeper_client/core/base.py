"""What holds, leases and clients have in common in `sync` and `aio`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack

from .claim import LockRequest
from .errors import LockLost, Unavailable
from .holds import HoldState, OnAsked, OnLost
from .lease import LeaseState
from .link import Answer, Link
from .settings import Duration, LockOptions, Settings, election_request, lock_request, permits_request
from .steps import Steps

L = TypeVar("L")


class BaseSessions(Generic[L]):
    """Makes locks, sets, semaphores and elections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def lock(self, *names: str, wait: Duration | None = None, **options: Unpack[LockOptions]) -> L:
        """Returns a lock, or with several names a set that is granted together or not at all.

        `wait` is in seconds: 0 does not wait, and None waits as long as the session lives. `LockOptions` describes the
        other options.
        """
        return self._lock(lock_request(names, wait, **options))

    def semaphore(
        self,
        name: str,
        *,
        permits: int = 1,
        limit: int | None = None,
        wait: Duration | None = None,
        **options: Unpack[LockOptions],
    ) -> L:
        """Returns permits of a semaphore. The first request of a semaphore must name its limit."""
        return self._lock(permits_request(lock_request((name,), wait, **options), permits, limit))

    def elect(
        self, name: str, value: str | None = None, *, wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> L:
        """Returns an election as a lock: its holder leads, and every client can read its value."""
        return self._lock(election_request(lock_request((name,), wait, **options), value))

    def _lock(self, request: LockRequest) -> L:
        raise NotImplementedError


class BaseHold:
    """A hold of a session: a lock, a set, or permits. Any thread or task may use and release it."""

    def __init__(self, state: HoldState) -> None:
        self._state = state

    def __repr__(self) -> str:
        state = "lost" if self._state.lost else "released" if self._state.released else "held"
        return f"<{type(self).__name__} {self._state}: {state}>"

    @property
    def token(self) -> int:
        """The fencing token: the protected resource refuses smaller ones. A set has `tokens` instead.

        The uses of a cached hold share one token, so the resource cannot refuse a late write of an earlier use.
        """
        return self._state.token

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock."""
        return dict(self._state.tokens)

    @property
    def lost(self) -> LockLost | None:
        """Reads the clock. Returns the error if another client may hold the lock, and otherwise None."""
        return self._state.lost

    @property
    def valid_for(self) -> float:
        """Seconds until another client may hold the lock if no renewal is answered; 0 once it is lost or released."""
        return self._state.valid_for

    def check(self) -> None:
        """Reads the clock. Raises LockLost if another client may hold the lock, and NotHeld after a release."""
        self._state.check()

    def on_lost(self, function: OnLost) -> None:
        """Calls the function once with the LockLost error when the hold is lost; at once if it is lost already.

        The task that renews the session calls it, or the release or close that finds the loss, so it must return soon.
        """
        self._state.on_lost(function)

    def on_asked(self, function: OnAsked) -> None:
        """Calls the function with the texts `by` and `why` each time a client asks the holder to release.

        The task that reads the events of the session calls it, so it must return soon.
        """
        self._state.on_asked(function)


class BaseLease:
    """A lock without a session. It ends after its duration unless it is refreshed. The handle proves it anywhere."""

    def __init__(self, state: LeaseState) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._state.lock} (token {self._state.token})>"

    @property
    def handle(self) -> str:
        """The secret that refreshes and releases the lease, in any process."""
        return self._state.handle

    @property
    def token(self) -> int:
        """The fencing token: the protected resource refuses smaller ones."""
        return self._state.token

    @property
    def lost(self) -> LockLost | None:
        """Reads the clock. Returns the error if the lease may have ended, and otherwise None."""
        return self._state.lost

    @property
    def valid_for(self) -> float:
        """Seconds until the lease may end; 0 once it has ended or was released."""
        return self._state.valid_for

    def check(self) -> None:
        """Reads the clock. Raises LockLost if the lease may have ended, and NotHeld after a release."""
        self._state.check()


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election."""

    who: str
    host: str
    pid: int
    token: int
    value: str | None


READS = ("locks", "sessions", "explain", "history", "leader", "tokens")
"""Calls that are reads. Paths that begin with a slash are reads, too."""


def call(link: Link, path: str, fields: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    """Makes any call of the HTTP interface. Only a read is repeated after an attempt whose outcome is not known."""
    texts = {name: str(value) if name in ("token", "session", "to") else value for name, value in fields.items()}
    if path in READS or path.startswith("/"):
        answer = yield from link.retry().until_answered(lambda timeout: link.get(path, texts, timeout))
        return answer.body
    answer = yield from link.retry().until_answered(
        lambda timeout: link.call(path, texts, timeout), repeat_unknown=False
    )
    return answer.body


def leader(link: Link, lock: str) -> Steps[Leader | None]:
    """Returns the leader of an election, or None."""
    row = yield from call(link, "leader", {"lock": lock})
    if row.get("token") is None:
        return None
    who, host, pid = row.get("who") or "", row.get("host") or "", row.get("pid") or 0
    return Leader(who, host, pid, int(row["token"]), row.get("value"))


def check(link: Link, lock: str, token: int) -> Steps[bool]:
    """Returns whether a fencing token is current."""
    answer: Answer = yield from link.retry().until_answered(
        lambda timeout: link.call("check", {"lock": lock, "token": str(token)}, timeout)
    )
    return answer.body.get("valid") is True


def closed() -> Unavailable:
    """Returns the error of a client that was closed."""
    return Unavailable("this client is closed")
