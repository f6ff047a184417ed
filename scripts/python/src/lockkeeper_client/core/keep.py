"""The task of a session: renews it, reports losses, and closes a session that it lost."""

import logging
from contextlib import suppress

from .cached import give_up_overdue
from .clock import LONGEST_SLEEP, SECOND
from .errors import Error, NotPermitted, SessionEnded
from .events import explain
from .holds import HoldState
from .retry import UNDECIDED, Backoff
from .session import Session
from .steps import Pause, Step, Steps, never

log = logging.getLogger("lockkeeper_client")

CLOSE_WAIT = 2 * SECOND


def keep(session: Session) -> Steps[None]:
    """Renews the session at a third of its TTL until it ends. No error of a renewal stops it."""
    task = _Keep(session)
    while True:
        report(session)
        if session.ended is not None:
            break
        try:
            give_up_overdue(session)
            yield from task.step()
        except Exception:
            # For example a handler of the program's log has raised it.
            with suppress(Exception):
                log.exception("the renewal of session %s failed", session.id)
            pause: Step = Pause(session.ttl // 100)
            yield pause
    if session.expired:
        yield from close(session, min(session.ttl, session.link.request_timeout), lost=True)


def close(session: Session, patience: int, *, lost: bool = False) -> Steps[None]:
    """Closes the session in the cluster: all that it holds is released. Gives up after `patience` ns."""
    link = session.link
    path, fields = f"sessions/{session.id}/close", {"handle": session.handle, "lost": lost}
    try:
        yield from link.retry(never, UNDECIDED, patience).until_answered(
            lambda timeout: link.leaving(link.call(path, fields, timeout), UNDECIDED)
        )
    except SessionEnded:
        pass
    except Error as error:
        with suppress(Exception):
            log.debug("the close of session %s was not answered: %s", session.id, error)


class _Keep:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._renewals = Backoff(session.link.clock)
        self._warned = False

    def step(self) -> Steps[None]:
        """Does what is due, or sleeps until then."""
        session, now = self._session, self._session.link.clock()
        if session.due <= now:
            yield from self._renew()
        else:
            due = min(session.due, _next_end(session))
            pause: Step = Pause(max(1, min(due - now, LONGEST_SLEEP)))
            yield pause

    def _renew(self) -> Steps[None]:
        session = self._session
        session.attempt += 1
        fields = {**session.proof, "attempt": session.attempt}
        try:
            attempt = session.link.call("renew", fields, _attempt_time(session))
            answer = yield from session.link.leaving(attempt, UNDECIDED)
            session.renewed(answer)
        except SessionEnded as error:
            session.end(error.reason, str(error))
            return
        except Error as error:
            session.due = session.link.clock() + self._renewals.pause(error)
            self._warn(error)
            return
        self._warned = False
        yield from look_for_losses(session)

    def _warn(self, error: Error) -> None:
        session = self._session
        log.debug("a renewal of session %s failed: %s", session.id, error)
        silent = session.link.clock() - session.validity.answered
        if not self._warned and session.ttl // 2 <= silent:
            self._warned = True
            log.warning("session %s: no renewal was answered for %.1f s: %s", session.id, silent / SECOND, error)


def look_for_losses(session: Session) -> Steps[None]:
    """Asks whether the holds last of which a stream may not have reported the end."""
    stream = session.stream
    for hold in session.watched():
        if stream is not None and hold.stream is stream:
            continue
        certain = True
        for name, token in list(hold.tokens.items()):
            if session.due <= session.link.clock():
                return
            try:
                answer = yield from session.link.call(
                    "check", {"lock": name, "token": str(token)}, _attempt_time(session)
                )
            except NotPermitted:
                # The rules may permit the check of other locks.
                certain = False
                continue
            except Error:
                return
            unchanged = hold.tokens.get(name) == token and not hold.upgrades
            certain = certain and unchanged
            if answer.body.get("valid") is False and unchanged and session.ended is None:
                yield from _read_reason(hold, name)
                hold.lose("ended", f"another client or an operator ended the hold of {name}")
        if certain:
            hold.stream = stream


def _read_reason(hold: HoldState, name: str) -> Steps[None]:
    """Reads in the history why the hold of this lock ended. If no node answers in time, the reason stays unknown."""
    session = hold.session
    since = {"lock": name, "from": f"{hold.granted_at}.0"}
    try:
        answer = yield from session.link.get("history", since, _attempt_time(session))
    except Error:
        return
    explain(session, hold, answer.body.get("records") or [])


def report(session: Session) -> None:
    """Calls the functions of lost holds, and ends the watch over them."""
    for hold in session.watched():
        if hold.lost is not None:
            hold.report()
            session.remove(hold)


def _next_end(session: Session) -> int:
    ends = (hold.until for hold in session.watched())
    return min(ends, default=session.validity.until)


def _attempt_time(session: Session) -> int:
    """A silent node is left after a sixth of the TTL, and nothing delays the report of a loss."""
    return max(1, min(session.ttl // 6, _next_end(session) - session.link.clock()))
