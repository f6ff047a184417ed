"""The exceptions of the client. Each word of `GET /v1/errors` has one class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

Problem = Mapping[str, Any]
"""A problem object (RFC 9457), as a node sent it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A client that holds a lock. `held` and `remaining` are seconds; `remaining` is None if only a release ends it."""

    who: str
    why: str | None
    host: str
    pid: int
    token: int
    mode: str
    owner: str | None
    session: str | None
    held: float
    remaining: float | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> "Holder":
        """Reads the holder from the JSON object of a node."""
        remaining = row.get("remaining_ms")
        return cls(
            who=row.get("who", ""),
            why=row.get("why"),
            host=row.get("host", ""),
            pid=row.get("pid", 0),
            token=int(row.get("token", 0)),
            mode=row.get("mode", ""),
            owner=row.get("owner"),
            session=row.get("session"),
            held=row.get("held_ms", 0) / 1_000,
            remaining=None if remaining is None else remaining / 1_000,
        )


def _holder(problem: Problem) -> Holder | None:
    row = problem.get("holder")
    return Holder.read(cast(Problem, row)) if isinstance(row, Mapping) else None


class Error(Exception):
    """An error of the service or of the client.

    `word` is the code of the error, `advice` is `retry`, `ask` or `give_up`, `detail` is a sentence, and `problem` is
    the object that the node sent, empty if the client found the error itself.
    """

    default: ClassVar[str] = "internal"
    default_advice: ClassVar[str] = "give_up"

    def __init__(self, detail: str, problem: Problem | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problem: Problem = problem or {}

    def __reduce__(self) -> tuple[type["Error"], tuple[str, Problem]]:
        return type(self), (self.detail, self.problem)

    def again(self) -> Self:
        """Returns an equal error to raise. One object that is raised again and again grows, and threads share it."""
        return type(self)(self.detail, self.problem)

    @property
    def word(self) -> str:
        """Code of the error, one of the closed table."""
        return str(self.problem.get("error", self.default))

    @property
    def advice(self) -> str:
        """What the caller may do: `retry`, `ask` or `give_up`."""
        return str(self.problem.get("advice", self.default_advice))


class Internal(Error):
    """A bug of a node, or an answer that the protocol does not allow."""


class NotAcquired(Error):
    """The lock was not granted in the time that the caller allowed."""

    default = "not-acquired"
    default_advice = "retry"

    @property
    def holder(self) -> Holder | None:
        """One of the holders; None if only other waiters, or a closed time, are in the way."""
        return _holder(self.problem)


class LockLost(Error):
    """The lock was lost while its holder worked. Another client may hold it."""

    default = "lost"

    @property
    def reason(self) -> str:
        """Why it was lost, for example `expired`, `broken` or `forked`."""
        return str(self.problem.get("reason", "expired"))

    @property
    def token(self) -> int | None:
        """Fencing token of the lost hold, if it has exactly one."""
        token = self.problem.get("token")
        return None if token is None else int(token)


class EventsMissed(Error):
    """A stream of events continues at a later position than the caller asked for."""

    default = "events-missed"

    @property
    def resume(self) -> str | None:
        """Position from which the stream can continue, if the node named one."""
        return self.problem.get("resume")


class InvalidArgument(Error, ValueError):
    """A value is out of bounds or malformed."""

    default = "invalid"


class Unavailable(Error):
    """Nothing happened, because no node could execute the request."""

    default = "unreachable"
    default_advice = "retry"


class OutcomeUnknown(Error):
    """The request may have been executed."""

    default = "unknown"
    default_advice = "ask"


class Refused(Error):
    """The cluster decided that the request is not possible."""

    default = "refused"


class AlreadyHeld(Refused):
    """The same owner already holds the lock or waits for it."""


class KindMismatch(Refused):
    """The name is in use as another kind: a lock or a semaphore."""


class Deadlock(Refused):
    """The wait would close a cycle of owners that wait for each other."""

    @property
    def cycle(self) -> list[dict[str, Any]]:
        """The links of the cycle. Each waits for the next, and the last for the first."""
        return list(self.problem.get("cycle") or [])


class LimitMismatch(Refused):
    """The semaphore has another limit than the request names."""


class LimitExceeded(Refused):
    """The request asks for more permits than the limit of the semaphore."""


class LimitUnknown(Refused):
    """The semaphore has no limit yet: its first request must name one."""


class Quota(Refused):
    """A limit of the namespace, lock or session is reached."""


class NotHeld(Refused):
    """The hold was released, or nothing is held with this handle or token."""

    default = "not-held"


class HeldByOther(Refused):
    """Another holder holds the lock."""

    @property
    def holder(self) -> Holder | None:
        """The holder, if the node named it."""
        return _holder(self.problem)


class NotAccepted(Refused):
    """The session does not wait for the lock, and does not accept hand-overs that it did not request."""


class Changed(Refused):
    """The value or state has changed since the caller read it."""


class SessionEnded(Refused):
    """The session has ended, and with it its holds and waits."""

    default = "session-ended"

    @property
    def reason(self) -> str:
        """Why it ended."""
        return str(self.problem.get("reason", "expired"))


class AlreadyOpen(Refused):
    """Another run of a program has opened a session with this handle."""


class WrongHandle(Refused):
    """The handle does not belong to the session or lease."""


class StaleAttempt(Refused):
    """A newer attempt was applied."""


class TooOld(Refused):
    """The request is older than what the cluster remembers."""


class RequestReused(Refused):
    """The request id was used for another request."""


class FeatureLevel(Refused):
    """The feature level of the cluster is too low."""


class MembersUnfit(Refused):
    """The change of members cannot be made."""


class NotPermitted(Refused):
    """The caller lacks the permission."""


class Unauthenticated(Refused):
    """The caller does not prove that it is a principal of the cluster."""


CLASSES: dict[str, type[Error]] = {
    "invalid": InvalidArgument,
    "not-acquired": NotAcquired,
    "already-held": AlreadyHeld,
    "kind-mismatch": KindMismatch,
    "deadlock": Deadlock,
    "limit-mismatch": LimitMismatch,
    "limit-exceeded": LimitExceeded,
    "limit-unknown": LimitUnknown,
    "quota": Quota,
    "not-held": NotHeld,
    "held-by-other": HeldByOther,
    "not-accepted": NotAccepted,
    "changed": Changed,
    "session-ended": SessionEnded,
    "already-open": AlreadyOpen,
    "wrong-handle": WrongHandle,
    "stale-attempt": StaleAttempt,
    "too-old": TooOld,
    "request-reused": RequestReused,
    "feature-level": FeatureLevel,
    "members-unfit": MembersUnfit,
    "not-permitted": NotPermitted,
    "unauthenticated": Unauthenticated,
    "unreachable": Unavailable,
    "no-leader": Unavailable,
    "overloaded": Unavailable,
    "unknown": OutcomeUnknown,
    "events-missed": EventsMissed,
    "stopping": Unavailable,
    "lost": LockLost,
    "internal": Internal,
}
"""The class of each word."""

_BY_ADVICE: dict[str, type[Error]] = {"retry": Unavailable, "ask": OutcomeUnknown}


def error_of(problem: Problem) -> Error:
    """Returns the exception for a problem object. A word of a later version gets a class by its advice."""
    if not isinstance(problem.get("pause_ms") or 0, int):
        return Internal("an error has a pause that is no number")
    word, detail = problem.get("error"), problem.get("detail") or problem.get("title") or "the node gave no detail"
    kind = CLASSES.get(str(word)) or _BY_ADVICE.get(str(problem.get("advice")), Refused)
    return kind(str(detail), problem)
