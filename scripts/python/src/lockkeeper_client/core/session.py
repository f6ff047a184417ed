"""One session: its identity, its validity, its request numbers, and its holds."""

import logging
import secrets
import threading
import uuid
from collections import deque
from contextlib import suppress
from typing import Any

from .clock import MILLISECOND, SECOND
from .errors import Error, SessionEnded
from .holds import HoldState
from .link import Answer, Link, given
from .metadata import Metadata
from .retry import UNDECIDED, Retry
from .steps import Steps
from .validity import Validity

log = logging.getLogger("lockkeeper_client")

RENEWALS_A_TTL = 3
EARLY_MAX = 256


class RequestNumbers:
    """Numbers the requests of a session. Every number below `answered_below` has its final answer."""

    def __init__(self) -> None:
        self._next = 1
        self._open: set[int] = set()

    def draw(self) -> int:
        """Returns the next number."""
        number, self._next = self._next, self._next + 1
        self._open.add(number)
        return number

    def finish(self, number: int) -> None:
        """Records that a request has its final answer."""
        self._open.discard(number)

    @property
    def answered_below(self) -> int:
        """The oldest number without a final answer."""
        return min(self._open, default=self._next)


class Session:
    """An open session. Several threads may use it; `lock` protects its collections.

    A handler of signals may interrupt the thread that has the lock, so the lock is reentrant.
    """

    def __init__(self, link: Link, handle: str, opened: Answer) -> None:
        self.link = link
        self.id = opened.text("session")
        self.handle = handle
        self.ttl = opened.number("ttl_ms") * MILLISECOND
        self.validity = Validity(opened.proof)
        self.holds: set[HoldState] = set()
        self.lock = threading.RLock()
        self.attempt = 0
        proof = opened.proof
        # The answer to a repeated request has the end that the first attempt set.
        late = (proof.deadline_ms - proof.stamp_ms) * MILLISECOND < self.ttl
        self.due = self.validity.answered + (0 if late else self.interval)
        """When to send the next renewal."""
        self.early: deque[tuple[str, dict[str, Any]]] = deque(maxlen=EARLY_MAX)
        """Events of holds whose grant is not known yet."""
        self.stream: object | None = None
        """The stream that reports what others do to the holds, while there is one."""
        self.first_stream = True
        """Whether the first stream has neither begun nor failed yet."""
        self.unused: dict[str, HoldState] = {}
        """The cached holds that no block uses, by the name of the lock. The longest unused one is first."""
        self._numbers = RequestNumbers()
        self._end: SessionEnded | None = None

    @property
    def interval(self) -> int:
        """Time between two renewals, in ns."""
        return self.ttl // RENEWALS_A_TTL

    @property
    def ended(self) -> SessionEnded | None:
        """Reads the clock. Returns the error of a session that has ended, or None."""
        if self._end is None and self.validity.is_passed(self.link.clock()):
            if self.link.foreign:
                self.end("restored", "its nodes belong to another cluster now")
            else:
                self.end("expired", "no renewal was answered before its own deadline")
        return None if self._end is None else self._end.again()

    @property
    def has_end(self) -> bool:
        """Whether an end is recorded. Unlike `ended` it does not read the clock, and writes no log."""
        return self._end is not None

    @property
    def valid_for(self) -> float:
        """Seconds until the session may end if no renewal is answered; 0 once it has ended."""
        return 0.0 if self.ended else self.validity.left(self.link.clock()) / SECOND

    @property
    def expired(self) -> bool:
        """Whether the client found the end, so that the cluster may not know it yet."""
        return self._end is not None and self._end.reason in ("expired", "restored")

    def end(self, reason: str, detail: str) -> None:
        """Records the end. Only the first one counts."""
        if self._end is not None:
            return
        problem = {"error": "session-ended", "reason": reason}
        self._end = SessionEnded(f"session {self.id} has ended: {detail}", problem)
        if reason not in ("closed", "forked"):
            # A handler of the program's log may raise: the error of the caller stays that of the loss.
            with suppress(Exception):
                log.error("session %s is lost: %s", self.id, detail)

    def forked(self) -> None:
        """Ends the session in the child of a fork, in which no other thread runs. The parent keeps it."""
        self.lock = threading.RLock()
        self.end("forked", "this process is a fork of the one that holds it")
        for hold in self.holds:
            hold.lose("forked", "this process is a fork of the one that holds it")

    def draw(self) -> tuple[int, int]:
        """Returns the number of the next request, and the number below which all requests are answered."""
        with self.lock:
            return self._numbers.draw(), self._numbers.answered_below

    def finish(self, number: int) -> None:
        """Records that a request has its final answer, or never gets one."""
        with self.lock:
            self._numbers.finish(number)

    @property
    def proof(self) -> dict[str, str]:
        """The fields that prove that a call comes from this session."""
        return {"session": self.id, "handle": self.handle}

    def add(self, hold: HoldState) -> None:
        """Starts to watch over a hold."""
        with self.lock:
            self.holds.add(hold)

    def remove(self, hold: HoldState) -> None:
        """Ends the watch over a hold that was released or reported as lost."""
        with self.lock:
            self.holds.discard(hold)
            for name in hold.tokens:
                if self.unused.get(name) is hold:
                    del self.unused[name]

    def watched(self) -> list[HoldState]:
        """Returns the holds over which the session watches."""
        with self.lock:
            return list(self.holds)

    def until_answered(self, retry: Retry, path: str, fields: dict[str, Any], number: int) -> Steps[Answer]:
        """Repeats a call with this request number until it is answered. A refusal is its final answer, too.

        It raises OutcomeUnknown if an attempt may have been executed, and the refusal does not say whether.
        """
        named = {**fields, **self.proof}

        def attempt(timeout: int) -> Steps[Answer]:
            return self.link.leaving(self.link.call(path, named, timeout), retry.repeated)

        try:
            answer = yield from retry.until_decided(attempt)
        except Error as error:
            if not isinstance(error, retry.repeated):
                self.finish(number)
            raise
        self.finish(number)
        return answer

    def repeat(self, path: str, fields: dict[str, Any], number: int) -> Steps[Answer]:
        """Repeats a call until it is answered or the session has ended."""
        return self.until_answered(self.patient(), path, fields, number)

    def patient(self) -> Retry:
        """Returns a retry in the background, where no caller could try again: it lasts until the session has ended."""
        return self.link.retry(lambda: self.ended, UNDECIDED, self.ttl * 1_000)

    def renewed(self, answer: Answer) -> None:
        """Applies the answer to a renewal."""
        self.validity.add(answer.proof, self.link.clock())
        self.due = answer.sent + self.interval


def open_session(link: Link, metadata: Metadata, ttl: int | None, accepts_hand_over: bool) -> Steps[Session]:
    """Opens a session. Repeated attempts use the same handle and instance, so they get the same session.

    If that session has ended before its answer arrived, another one is opened under a new handle.
    """
    fields = given(
        instance=str(uuid.uuid4()),
        ttl_ms=None if ttl is None else ttl // MILLISECOND,
        accepts_hand_over=accepts_hand_over or None,
        **metadata.fields(),
    )
    while True:
        handle = fields["handle"] = secrets.token_hex(16)
        with suppress(SessionEnded):
            answer = yield from link.retry().until_answered(lambda timeout: link.call("sessions", fields, timeout))
            return Session(link, handle, answer)
        # An attempt whose answer was lost opened the session, and it has ended since.
