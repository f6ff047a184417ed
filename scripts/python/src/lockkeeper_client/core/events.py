"""Applies the events of a session: its end, and what other clients do to its holds."""

from collections.abc import Iterable
from typing import Any

from .cached import keep_no_longer, release_later
from .holds import HoldState
from .session import Session

LOSSES = {"broken": "broken", "handed-over": "handed over", "expired": "expired"}
"""Events after which a hold is lost, and the reason that the client reports."""
REQUESTS = ("revoke-requested", "recalled")
"""Events after which the session keeps the hold no longer than its use: others want the lock."""
ENDS = ("released", "expired", "lost", "broken")
"""Reasons of the cluster for the end of a session. Words of later versions count as `broken`."""


def apply(session: Session, name: str, fields: dict[str, Any]) -> None:
    """Applies an event. Ignores those of later versions, and keeps those of a hold whose grant is not known yet."""
    if name == "session-ended":
        reason, why = str(fields.get("reason") or ""), str(fields.get("why") or "")
        detail = " ".join(word for word in (reason, why and f"({why})") if word)
        session.end(reason if reason in ENDS else "broken", f"the cluster ended it: {detail}")
        for hold in session.watched():
            hold.report()
        return
    if name not in LOSSES and name not in REQUESTS:
        return
    with session.lock:
        holds = [hold for hold in session.holds if _concerns(hold, name, fields)]
        if not holds:
            # A grant whose hold is added from now on finds it here.
            session.early.append((name, fields))
        # A use that ends in another thread must not pass the hold on before the change.
        unused = _change(session, holds, name, fields)
    release_later(session, unused)
    for hold in holds:
        _report(session, hold, name, fields)


def replay(session: Session, hold: HoldState) -> None:
    """Applies the events that arrived before the answer that granted the hold."""
    with session.lock:
        early = [event for event in session.early if _concerns(hold, *event)]
        for event in early:
            session.early.remove(event)
    for name, fields in early:
        release_later(session, _change(session, [hold], name, fields))
        _report(session, hold, name, fields)


def explain(session: Session, hold: HoldState, records: Iterable[dict[str, Any]]) -> None:
    """Applies the record of the history that ended the hold."""
    for record in records:
        name = str(record.get("event") or "")
        if name in LOSSES and _concerns(hold, name, record):
            _change(session, [hold], name, record)
            _report(session, hold, name, record)
            return


def _concerns(hold: HoldState, name: str, fields: dict[str, Any]) -> bool:
    """Whether an event names a token of the hold. A hand-over names the new token, and the old one in `from`."""
    token = fields.get("from" if name == "handed-over" else "token")
    return token is not None and str(token) in map(str, hold.tokens.values())


def _change(session: Session, holds: list[HoldState], name: str, fields: dict[str, Any]) -> list[HoldState]:
    """Changes what the client knows of the holds. Returns the unused ones, which the session is to release."""
    if name in REQUESTS:
        return keep_no_longer(session, holds)
    for hold in holds:
        if name == "expired":
            # The reason is the cluster's, for example that the longest time of the hold is over.
            reason = str(fields.get("reason") or LOSSES[name])
            hold.lose(reason, reason, under_lock=True)
        else:
            by, why = _words(fields)
            words = (LOSSES[name], by and f"by {by}", why and f"({why})")
            hold.lose(LOSSES[name], " ".join(word for word in words if word), under_lock=True)
    return []


def _report(session: Session, hold: HoldState, name: str, fields: dict[str, Any]) -> None:
    """Calls the program's functions, without a lock."""
    if name == "revoke-requested":
        hold.asked(*_words(fields))
    elif name in LOSSES:
        hold.report()
        session.remove(hold)


def _words(fields: dict[str, Any]) -> tuple[str, str]:
    """Returns the client that acted, and why. Records of the history have the words of an operator as their reason."""
    return str(fields.get("by") or ""), str(fields.get("why") or fields.get("reason") or "")
