"""Acquires locks in a session, and changes its holds."""

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import Error, InvalidArgument, OutcomeUnknown
from .events import replay
from .holds import HoldState
from .link import Answer
from .metadata import Metadata
from .poll import Poll
from .session import Session
from .steps import Steps
from .validity import Validity

Reentry = Literal["refuse", "count", "wait"]


@dataclass(frozen=True, slots=True)
class LockRequest:
    """What a lock, a set or a semaphore asks for. `wait` is in ns; None waits as long as the session lives."""

    names: tuple[str, ...]
    wait: int | None
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    why: str | None = None

    def __post_init__(self) -> None:
        if not self.names:
            raise InvalidArgument("lock: at least one name, got none")

    def body(self) -> dict[str, Any]:
        """Returns the fields that name the locks and their mode."""
        if len(self.names) == 1:
            return {"lock": self.names[0], **self.fields}
        fields = dict(self.fields)
        mode = {"mode": fields.pop("mode")} if "mode" in fields else {}
        return {"locks": [{"lock": name, **mode} for name in self.names], **fields}


def acquire(session: Session, request: LockRequest, metadata: Metadata) -> Steps[HoldState]:
    """Acquires a lock or a set. An acquire that fails or is cancelled leaves neither a place nor a hold."""
    number, below = session.draw()
    fields = {**request.body(), **metadata.because(request.why).fields(), "answered_below": str(below)}
    answer = yield from _claim(session, "acquire", fields, number, request.wait)
    try:
        rows: list[dict[str, Any]] = answer.body.get("locks") or [
            {"lock": request.names[0], "token": answer.body.get("token")}
        ]
        tokens = {str(row["lock"]): int(row["token"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        session.link.spawn(session.repeat("withdraw", {"request": str(number)}, number))
        raise OutcomeUnknown("an answer has no token") from error
    hold = HoldState(session, tokens, Validity(answer.proof) if answer.ends else None, answer.index)
    session.add(hold)
    replay(session, hold)
    if (end := session.ended) is not None:
        session.remove(hold)
        raise end
    return hold


def upgrade(hold: HoldState, wait: int | None) -> Steps[None]:
    """Makes a shared hold exclusive. Its token changes."""
    hold.check()
    number, _ = hold.session.draw()
    name, token = next(iter(hold.tokens)), hold.token
    hold.changing = True
    try:
        fields = {"lock": name, "token": str(token)}
        answer = yield from _claim(hold.session, "upgrade", fields, number, wait)
        hold.tokens = {name: answer.number("token")}
        replay(hold.session, hold)
    finally:
        hold.changing = False


def _claim(session: Session, path: str, fields: dict[str, Any], number: int, wait: int | None) -> Steps[Answer]:
    named = {**fields, **session.proof, "request": str(number)}

    def stop() -> BaseException | None:
        return session.ended

    def send(waits: dict[str, int], timeout: int) -> Steps[Answer]:
        return session.link.call(path, {**named, **waits}, timeout=timeout, stop=stop)

    def withdraw() -> Steps[Answer]:
        return session.repeat("withdraw", {"request": str(number)}, number)

    try:
        answer = yield from Poll(session.link, send, wait, stop).granted(withdraw)
    except Error as error:
        if not isinstance(error, OutcomeUnknown):
            session.finish(number)
        raise
    session.finish(number)
    return answer


def change(hold: HoldState, path: str, **fields: Any) -> Steps[Answer]:
    """Makes a change of a hold that does not wait: `value` or `downgrade`."""
    hold.check()
    session, number = hold.session, hold.session.draw()[0]
    named = {"lock": next(iter(hold.tokens)), "token": str(hold.token), "request": str(number), **fields}
    retry = session.link.retry(lambda: session.ended)
    return (yield from session.until_answered(retry, path, named, number))
