"""Cached holds: their session keeps them between uses, until another request waits for the lock.

Only the stream of events that began before the request of a hold certainly reports its recall. So a hold is kept while
that stream lasts, and while requests go to the node of the stream: one that fails to answer may report nothing, too.
"""

import logging
from contextlib import suppress

from .clock import SECOND
from .errors import Error
from .holds import HoldState
from .retry import UNDECIDED, Backoff, pause
from .session import Session
from .steps import Pause, Step, Steps

log = logging.getLogger("lockkeeper_client")

UNUSED_TIME_MAX = 30 * SECOND
"""A session releases a hold that was not used for longer."""
UNUSED_MAX = 1_024
"""Unused holds that one session keeps. It releases the longest unused one first."""
FIRST_STREAM_WAIT = SECOND
"""How long the first cached acquire waits for the stream of a new session, without which no hold is kept."""


def take(session: Session, name: str) -> Steps[HoldState | None]:
    """Returns the unused hold of a lock for its next use, which needs no request, or None.

    Without a renewal for half a TTL a hold is not used again: its recall or its end may have been missed.
    """
    clock = session.link.clock
    began = clock()
    # With asyncio a loop of such uses lets other tasks run only here.
    step: Step = Pause(0)
    yield step
    while session.first_stream and session.ended is None and clock() - began < FIRST_STREAM_WAIT:
        step = Pause(FIRST_STREAM_WAIT // 200)
        yield step
    renewed = session.ended is None and clock() - session.validity.answered < session.ttl // 2
    with session.lock:
        hold = session.unused.get(name)
        if hold is None:
            return None
        if renewed and not hold.ended:
            del session.unused[name]
            return hold
    give_up(session, [hold])
    return None


def keep_unused(hold: HoldState) -> bool:
    """Keeps a hold at the end of its use for the next one, under the same token. Returns whether the session did so."""
    session, name = hold.session, next(iter(hold.tokens))
    if hold.lost is not None:
        return False
    with session.lock:
        if hold.released:
            # Another thread has ended the same use.
            return True
        if not _is_kept(hold) or hold.ended or name in session.unused:
            return False
        session.remove(hold)
        hold.released = True
        unused = HoldState(session, dict(hold.tokens), hold.validity, hold.granted_at)
        unused.stream, unused.kept_by, unused.unused_since = hold.stream, hold.kept_by, session.link.clock()
        session.add(unused)
        session.unused[name] = unused
        surplus = list(session.unused.values())[:-UNUSED_MAX]
    give_up(session, surplus)
    return True


def give_up(session: Session, holds: list[HoldState]) -> None:
    """Keeps these holds no longer: unused ones are released in the background, and others at the end of their use."""
    release_later(session, keep_no_longer(session, holds))


def keep_no_longer(session: Session, holds: list[HoldState]) -> list[HoldState]:
    """Ends the keeping of these holds. Returns the unused ones, which the caller is to release."""
    with session.lock:
        for hold in holds:
            hold.kept_by = None
        unused = [hold for hold in holds if session.unused.get(next(iter(hold.tokens))) is hold]
        for hold in unused:
            session.remove(hold)
            hold.released = True
    return unused


def release_later(session: Session, unused: list[HoldState]) -> None:
    """Releases these holds in the background."""
    if unused:
        session.link.spawn(_release(session, unused))


def give_up_overdue(session: Session) -> None:
    """Gives up the holds that were not used for long."""
    now = session.link.clock()
    with session.lock:
        overdue = [hold for hold in session.unused.values() if UNUSED_TIME_MAX <= now - hold.unused_since]
    if overdue:
        give_up(session, overdue)


def keeps(session: Session) -> bool:
    """Whether the session keeps a hold, or will keep one at the end of its use."""
    return any(_is_kept(hold) for hold in session.watched())


def _is_kept(hold: HoldState) -> bool:
    return hold.kept_by is not None and hold.kept_by is hold.session.stream


def _release(session: Session, holds: list[HoldState]) -> Steps[None]:
    """Releases holds at the cluster. A release that has no final answer is repeated after the others."""
    numbers = {hold: 0 for hold in holds}
    backoff = Backoff(session.link.clock)
    while numbers and session.ended is None:
        failed: Error | None = None
        for hold, number in list(numbers.items()):
            retry = session.link.retry(lambda: session.ended, session.link.passing)
            number = numbers[hold] = number or session.draw()[0]
            fields = {"lock": next(iter(hold.tokens)), "token": str(hold.token), "request": str(number)}
            try:
                yield from session.until_answered(retry, "release", fields, number)
            except UNDECIDED as error:
                failed = error
                if not isinstance(error, retry.repeated):
                    # This number has its answer.
                    numbers[hold] = 0
                continue
            except Error as error:
                with suppress(Exception):
                    log.debug("the release of the unused hold %s ended: %s", hold, error)
            del numbers[hold]
        if failed is not None:
            yield from pause(backoff.pause(failed), session.link.clock, lambda: session.ended)
