"""Gives back a hold, and decides what the end of a `with` block raises."""

import logging
from contextlib import suppress

from .cached import keep_unused
from .claim import settle
from .errors import Error, HeldByOther, LockLost, NotHeld, SessionEnded
from .holds import HoldState
from .lease import LeaseState
from .steps import Steps

log = logging.getLogger("lockkeeper_client")

HARMLESS = ("expired", "lost", "released", "closed")
"""Ends of a session that came after the client's own deadline, or that the client asked for."""


def release(hold: HoldState) -> Steps[None]:
    """Releases a hold; does nothing if it was released before. The session keeps a cached one for its next use.

    Raises LockLost if it was lost, and reports the loss; the other locks of a lost set are released first. An upgrade
    whose outcome is not known is withdrawn before. A release that is cancelled or not answered continues in the
    background. So does one whose token a node refuses, if a file has the token, because the node may not know a new
    token yet. After any other refusal the hold keeps the locks that were not released; but if an attempt may have been
    executed, the error is OutcomeUnknown, and the release continues.
    """
    if hold.released or keep_unused(hold):
        return
    session = hold.session
    session.remove(hold)
    lost = hold.lost
    if lost is not None and (len(hold.tokens) == 1 or session.ended is not None):
        hold.report()
        raise lost
    hold.released = lost is None
    retry = session.link.retry(lambda: session.ended, session.link.passing)
    requests = [(session.draw()[0], name) for name in hold.tokens]
    while requests:
        number, name = requests[0]
        try:
            yield from settle(hold, retry)
            # The attempts for other locks leave no doubt about this one.
            retry.in_doubt = False
            yield from session.until_answered(retry, "release", _fields(hold, name, number), number)
        except (NotHeld, HeldByOther) as error:
            lost = lost or _lost(hold, "ended", error)
        except SessionEnded as error:
            if error.reason not in HARMLESS:
                lost = lost or _lost(hold, error.reason, error)
        except BaseException as error:
            if not isinstance(error, Error) or isinstance(error, retry.repeated):
                for number, name in requests:
                    session.link.spawn(_later(hold, name, number))
            else:
                _keep(hold, requests)
            if lost is not None:
                hold.report()
                if isinstance(error, Error):
                    raise lost from error
            raise
        requests.pop(0)
    if lost is not None:
        hold.report()
        raise lost


def _fields(hold: HoldState, name: str, number: int) -> dict[str, str]:
    return {"lock": name, "token": str(hold.tokens[name]), "request": str(number)}


def _later(hold: HoldState, name: str, number: int) -> Steps[None]:
    """Releases a lock once a node answers."""
    yield from settle(hold, hold.session.patient())
    yield from hold.session.repeat("release", _fields(hold, name, number), number)


def _keep(hold: HoldState, refused: list[tuple[int, str]]) -> None:
    """Watches again over the locks of a hold whose release was refused."""
    hold.released = False
    hold.tokens = {name: hold.tokens[name] for _, name in refused}
    # Events that arrived meanwhile found no hold.
    hold.stream = None
    hold.session.add(hold)
    for number, _ in refused:
        hold.session.finish(number)


def _lost(hold: HoldState, reason: str, error: Error) -> LockLost:
    """The cluster ended the hold before its release, so its work was not protected to the end."""
    hold.released = False
    hold.lose(reason, str(error))
    lost = hold.lost
    assert lost is not None
    lost.__cause__ = error
    return lost


def leave(hold: HoldState | LeaseState, error: BaseException | None) -> Steps[None]:
    """Ends a `with` block.

    A lost hold raises LockLost if the body raised nothing, and a refused release raises its refusal; otherwise the
    error of the body gets a note. A release that is not answered raises nothing, because the work is done: it continues
    in the background.
    """
    link = hold.session.link if isinstance(hold, HoldState) else hold.link
    try:
        yield from release(hold) if isinstance(hold, HoldState) else hold.release()
    except LockLost as lost:
        if error is None:
            raise
        if not (isinstance(error, LockLost) and str(error) == str(lost)):
            error.add_note(str(lost))
    except link.passing as silent:
        with suppress(Exception):
            log.warning("the release of %s continues in the background: %s", hold, silent)
    except Error as refused:
        if error is None:
            raise
        error.add_note(str(refused))
