"""Follows the events of a session: its end, and what other clients do to its holds."""

import logging

from .cached import give_up, keeps
from .clock import SECOND
from .endpoints import Endpoint
from .errors import Error, OutcomeUnknown, SessionEnded, Unavailable
from .events import apply
from .http import EventReader, Malformed
from .keep import look_for_losses, report
from .link import json_object
from .retry import Backoff, pause
from .session import Session
from .steps import Next, NotAnswered, Steps, next_part

log = logging.getLogger("lockkeeper_client")

SILENCE_MAX = 40 * SECOND
"""A node sends a comment each 15 s."""


def follow(session: Session) -> Steps[None]:
    """Applies the events of a session while it lives. Ends if the nodes have no such stream."""
    link, backoff = session.link, Backoff(session.link.clock)
    while session.ended is None:
        endpoint = link.endpoints.current
        try:
            path = f"sessions/{session.id}/events"
            yield from link.follow(path, {}, link.attempt_timeout, lambda: session.ended)
            session.stream, session.first_stream = object(), False
            # Events before the stream began may be missing.
            yield from look_for_losses(session)
            yield from _read(session, endpoint)
            error: Error = Unavailable("the stream of events ended")
        except SessionEnded as ended:
            session.end(ended.reason, str(ended))
            report(session)
            return
        except Error as failed:
            if failed.problem.get("status") in (404, 405):
                return
            error = failed
        finally:
            session.stream, session.first_stream = None, False
        # A recall may be missed from now on.
        give_up(session, session.watched())
        link.endpoints.failed(endpoint)
        yield from pause(backoff.pause(error), link.clock, lambda: session.ended)


def _read(session: Session, endpoint: Endpoint) -> Steps[None]:
    reader = EventReader()

    def stop() -> BaseException | None:
        if session.ended is None and session.link.endpoints.current != endpoint and keeps(session):
            return Unavailable(f"the requests of the session go to another node than {endpoint}")
        return session.ended

    while True:
        try:
            part = yield from next_part(Next(SILENCE_MAX, stop))
            events = reader.feed(part)
        except (NotAnswered, Malformed) as error:
            raise OutcomeUnknown(f"the stream of events broke: {error}") from error
        for name, data in events:
            _apply(session, name, data)
        if not part:
            return


def _apply(session: Session, name: str, data: str) -> None:
    """Applies one event. Ignores those of later versions."""
    fields = json_object(data)
    if fields is not None:
        apply(session, name, fields)
