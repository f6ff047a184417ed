"""Acquires locks in a session, and changes its holds."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from .cached import give_up, take
from .errors import Error, Internal, InvalidArgument, OutcomeUnknown
from .events import replay
from .holds import HoldState
from .link import Answer
from .metadata import Metadata
from .poll import Poll, Withdraw, is_grant, understood
from .retry import UNDECIDED, Retry
from .session import Session
from .steps import Steps
from .validity import Validity

log = logging.getLogger("lockkeeper_client")

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
        if self.cached:
            if len(self.names) != 1:
                raise InvalidArgument(f"lock: one name where the hold is cached, got {len(self.names)}")
            for name, value in self.fields.items():
                if name != "cached" and value not in (None, False):
                    # The options `shared` and `permits` make the field `mode`.
                    option = value if name == "mode" else name.removesuffix("_ms")
                    given = self.fields.get(option, True) if name == "mode" else value
                    shown = f"{given} ms" if name.endswith("_ms") else repr(given)
                    raise InvalidArgument(f"{option}: left out where the hold is cached, got {shown}")

    @property
    def cached(self) -> bool:
        """Whether the session keeps the hold between uses."""
        return self.fields.get("cached") is True

    def body(self) -> dict[str, Any]:
        """Returns the fields that name the locks and their mode."""
        if len(self.names) == 1:
            return {"lock": self.names[0], **self.fields}
        fields = dict(self.fields)
        mode = {"mode": fields.pop("mode")} if "mode" in fields else {}
        return {"locks": [{"lock": name, **mode} for name in self.names], **fields}


def acquire(session: Session, request: LockRequest, metadata: Metadata) -> Steps[HoldState]:
    """Acquires a lock or a set. An acquire that fails or is cancelled leaves neither a place nor a hold."""
    if request.cached and (kept := (yield from take(session, request.names[0]))) is not None:
        return kept
    stream = session.stream
    number, below = session.draw()
    fields = {**request.body(), **metadata.because(request.why).fields(), "answered_below": str(below)}

    def withdraw(retry: Retry) -> Steps[Answer]:
        return _withdraw(session, number, retry)

    def read(answer: Answer) -> HoldState:
        one = {"lock": request.names[0], "token": answer.body.get("token")}
        rows: list[dict[str, Any]] = answer.body.get("locks") or [one]
        try:
            tokens = {str(row["lock"]): int(row["token"]) for row in rows}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Internal("an answer has no token") from error
        return HoldState(session, tokens, Validity(answer.proof) if answer.ends else None, answer.index)

    hold = read((yield from _claim(session, "acquire", fields, number, request.wait, read, withdraw)))
    hold.stream = stream
    hold.kept_by = stream if request.cached else None
    session.add(hold)
    replay(session, hold)
    if (end := session.ended) is not None:
        session.remove(hold)
        raise end
    return hold


def upgrade(hold: HoldState, wait: int | None) -> Steps[None]:
    """Makes a shared hold exclusive. Its token changes.

    An upgrade that is cancelled or not answered is withdrawn in the background. One that was granted before cannot be
    withdrawn: then the hold is exclusive.
    """
    yield from settle(hold)
    hold.check()
    give_up(hold.session, [hold])
    fields = {"lock": next(iter(hold.tokens)), "token": str(hold.token)}
    session, number = hold.session, hold.session.draw()[0]
    hold.upgrades[number] = False

    def withdraw(retry: Retry) -> Steps[Answer]:
        hold.upgrades[number] = True
        return _withdraw_upgrade(hold, number, retry)

    try:
        answer = yield from _claim(session, "upgrade", fields, number, wait, _token, withdraw)
    except Error as error:
        if not isinstance(error, OutcomeUnknown):
            hold.upgrades.pop(number, None)
        raise
    _decided(hold, number, answer)


def settle(hold: HoldState, retry: Retry | None = None) -> Steps[None]:
    """Waits until it is known what became of withdrawn upgrades, and with it the token of the hold.

    With the `retry` of a release it withdraws all upgrades. Raises the error of a withdrawal without a final answer.
    """
    numbers = [number for number, withdrawn in list(hold.upgrades.items()) if withdrawn or retry is not None]
    for number in numbers:
        repeat = retry or hold.session.link.retry(lambda: hold.session.ended)
        try:
            yield from _withdraw_upgrade(hold, number, repeat)
        except UNDECIDED:
            raise
        except Error as error:
            # The next request with the token finds what became of the hold.
            with suppress(Exception):
                log.debug("the withdrawal of an upgrade of %s failed: %s", hold, error)


def _withdraw(session: Session, number: int, retry: Retry) -> Steps[Answer]:
    """Withdraws a request, which is open until the cluster has decided what became of it."""
    fields = {"request": str(number), **session.proof}

    def attempt(timeout: int) -> Steps[Answer]:
        return session.link.leaving(understood(session.link.call("withdraw", fields, timeout), _token), retry.repeated)

    try:
        answer = yield from retry.until_answered(attempt)
    except Error as error:
        if not isinstance(error, UNDECIDED):
            session.finish(number)
        raise
    session.finish(number)
    return answer


def _withdraw_upgrade(hold: HoldState, number: int, retry: Retry) -> Steps[Answer]:
    """Withdraws an upgrade. If it was granted before, it cannot be withdrawn, and the answer is the grant."""
    try:
        answer = yield from _withdraw(hold.session, number, retry)
    except Error as error:
        if not isinstance(error, UNDECIDED):
            hold.upgrades.pop(number, None)
        raise
    _decided(hold, number, answer)
    return answer


def _decided(hold: HoldState, number: int, answer: Answer) -> None:
    """Applies the first final answer to an upgrade or to its withdrawal."""
    if number in hold.upgrades and is_grant(answer):
        hold.tokens = {next(iter(hold.tokens)): _token(answer)}
        replay(hold.session, hold)
    hold.upgrades.pop(number, None)


def _token(answer: Answer) -> int:
    return answer.number("token")


def _claim(
    session: Session,
    path: str,
    fields: dict[str, Any],
    number: int,
    wait: int | None,
    read: Callable[[Answer], object],
    withdraw: Withdraw,
) -> Steps[Answer]:
    """Makes a request that may wait. One that ends without a grant that `read` understands is withdrawn."""
    named = {**fields, **session.proof, "request": str(number)}

    def stop() -> BaseException | None:
        return session.ended

    def send(waits: dict[str, int], timeout: int) -> Steps[Answer]:
        return understood(session.link.call(path, {**named, **waits}, timeout, stop), read)

    try:
        answer = yield from Poll(session.link, send, wait, stop).granted(withdraw)
    except Error as error:
        if not isinstance(error, OutcomeUnknown):
            session.finish(number)
        raise
    session.finish(number)
    return answer


def change(hold: HoldState, path: str, **fields: Any) -> Steps[Answer]:
    """Makes a change of a hold that does not wait: `value` or `downgrade`. It ends the keeping of a cached hold."""
    yield from settle(hold)
    hold.check()
    give_up(hold.session, [hold])
    named = {"lock": next(iter(hold.tokens)), "token": str(hold.token), **fields}
    session, number = hold.session, hold.session.draw()[0]
    named["request"] = str(number)
    retry = session.link.retry(lambda: session.ended)
    try:
        return (yield from session.until_answered(retry, path, named, number))
    finally:
        # No attempt follows, so an open number would only keep the outcomes of all later ones in the cluster.
        session.finish(number)
