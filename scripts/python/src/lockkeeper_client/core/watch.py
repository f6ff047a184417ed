"""Follows what happens in a namespace, from node to node."""

from collections import deque
from typing import Any

from .errors import Error, EventsMissed, OutcomeUnknown, Unavailable, error_of
from .follow import SILENCE_MAX
from .http import EventReader, Malformed
from .link import Link, json_object
from .retry import Backoff, pause
from .steps import Next, NotAnswered, Steps, next_part

AFTER_ALL = 2**32 - 1
"""The largest number of an event within its log entry."""


def begin_watch(link: Link, prefix: str, after: str | None) -> Steps["WatchState"]:
    """Returns a watch that begins after a position, by default after all that was decided before this call."""
    if after is None:
        fields = {"prefix": prefix, "rows": 1}
        answer = yield from link.retry().until_answered(lambda timeout: link.get("locks", fields, timeout))
        after = f"{answer.index}.{AFTER_ALL}"
    return WatchState(link, prefix, after)


class WatchState:
    """A watch, which continues at another node when one fails."""

    def __init__(self, link: Link, prefix: str, after: str) -> None:
        self.position = after
        """The position of the last event that was returned."""
        self.closed = False
        self.forked = False
        """Whether the watch belongs to the parent of this process."""
        self._link = link
        self._prefix = prefix
        self._backoff = Backoff(link.clock)
        self._endpoint = link.endpoints.current
        self._reader: EventReader | None = None
        self._received: deque[dict[str, Any]] = deque()

    def next(self) -> Steps[dict[str, Any] | None]:
        """Returns the next event; None once the watch is closed. A call after an error tries again.

        Raises EventsMissed if the cluster no longer has the next event; the next call continues after the missing ones.
        Raises Unavailable if no node answers in time, and in the child of a fork.
        """
        if self.forked:
            raise Unavailable("this watch belongs to the parent of this process: begin another one")
        try:
            while not self.closed:
                if self._received:
                    event = self._received.popleft()
                    if "error" not in event:
                        self.position = f"{event.get('position')}@{event.get('cluster_id')}"
                        return event
                    yield from self._ended(error_of(event))
                elif self._reader is None:
                    yield from self._link.retry(self._stop).until_answered(self._begin)
                else:
                    yield from self._read(self._reader)
        except EventsMissed as missed:
            self.position = missed.resume or self.position
            raise
        except Unavailable:
            if not self.closed:
                raise
        return None

    def _begin(self, timeout: int) -> Steps[None]:
        fields = {"prefix": self._prefix, "from": self.position}
        self._endpoint = yield from self._link.follow("watch", fields, timeout, self._stop)
        self._reader = EventReader()

    def _read(self, reader: EventReader) -> Steps[None]:
        try:
            part = yield from next_part(Next(SILENCE_MAX, self._stop))
            events = [json_object(data) for _, data in reader.feed(part)]
        except (NotAnswered, Malformed) as error:
            yield from self._ended(Unavailable(f"the stream of events broke: {error}"))
            return
        self._received.extend(event for event in events if event is not None)
        if not part:
            self._received.append({"error": "unreachable", "advice": "retry", "detail": "the stream of events ended"})

    def _ended(self, error: Error) -> Steps[None]:
        """Asks another node next. Raises the error if a retry cannot help."""
        self._reader = None
        if not isinstance(error, (Unavailable, OutcomeUnknown)):
            raise error
        self._link.endpoints.failed(self._endpoint)
        yield from pause(self._backoff.pause(error), self._link.clock, self._stop)

    def _stop(self) -> BaseException | None:
        return Unavailable("the watch is closed") if self.closed else None
