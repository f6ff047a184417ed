"""Locks that live without a session, until their duration is over."""

import logging
import secrets
import uuid
from contextlib import suppress
from typing import Any

from .clock import SECOND
from .errors import Error, HeldByOther, Internal, LockLost, NotHeld, OutcomeUnknown, Quota
from .link import Answer, Link, milliseconds
from .metadata import Metadata
from .poll import Poll, understood
from .retry import UNDECIDED, Retry
from .steps import Steps, never
from .validity import MARGIN_LEFT_PERMILLE, Validity

log = logging.getLogger("lockkeeper_client")


class LeaseState:
    """A granted lease. The handle proves it in any process."""

    def __init__(self, link: Link, lock: str, handle: str, duration: int, granted: Answer) -> None:
        self.link = link
        self.lock = lock
        self.handle = handle
        self.duration = duration
        self.token = granted.number("token")
        self.validity = Validity(granted.proof)
        self.released = False
        self._attempt = 0
        self._in_doubt: dict[int, int] = {}
        """The earliest end that each refresh without an answer may have set."""
        self._reason: str | None = None

    def __str__(self) -> str:
        return f"the lease of {self.lock} (token {self.token})"

    @property
    def lost(self) -> LockLost | None:
        """Reads the clock. Returns the error of a lease that may have ended, or None."""
        if self._reason is None and not self.released:
            now = self.link.clock()
            if self.validity.is_passed(now) or self._ends[0] <= now:
                self._lose("expired")
        if self._reason is None:
            return None
        problem = {"error": "lost", "reason": self._reason, "token": self.token}
        return LockLost(f"{self} has ended: {self._reason}", problem)

    @property
    def valid_for(self) -> float:
        """Seconds until another client may have it; 0 if it has ended or was released."""
        over = self.lost is not None or self.released
        return 0.0 if over else max(0, self._ends[0] - self.link.clock()) / SECOND

    def check(self) -> None:
        """Raises LockLost if the lease may have ended, and NotHeld if it was released."""
        if (lost := self.lost) is not None:
            raise lost
        if self.released:
            raise NotHeld(f"the lease of {self.lock} was released")

    def refresh(self, duration: int | None) -> Steps[None]:
        """Sets the end to `duration` ns from now, by default the duration of the lease.

        While it may have been executed and has no answer, the lease is valid until the earlier of both ends.
        """
        self.check()
        self._attempt += 1
        attempt, retry = self._attempt, self.link.retry()
        length = self.duration if duration is None else duration
        fields = {**self._named, "lease_ms": milliseconds(length), "attempt": attempt}

        def refreshed(timeout: int) -> Steps[Answer]:
            # An attempt that was certainly not executed changes nothing, so the doubt begins with one that may be.
            self._in_doubt.setdefault(attempt, self.link.clock() + length * MARGIN_LEFT_PERMILLE // 1_000)
            try:
                return (yield from self.link.call("refresh", fields, timeout))
            except Error as error:
                if not (retry.in_doubt or isinstance(error, (OutcomeUnknown, Internal))):
                    self._in_doubt.pop(attempt, None)
                raise

        try:
            answer = yield from retry.until_decided(refreshed)
        except (NotHeld, HeldByOther) as error:
            raise self._ended() from error
        self.validity.add(answer.proof, self.link.clock())
        for earlier in list(self._in_doubt):
            # An earlier attempt has no effect after this one.
            if earlier <= attempt:
                self._in_doubt.pop(earlier, None)
        self.check()

    def release(self) -> Steps[None]:
        """Releases the lease; does nothing if it was released before. Raises LockLost if it has ended."""
        if self.released:
            return
        if (lost := self.lost) is not None:
            if self._in_doubt:
                # The lease may last longer than the client can rely on it.
                self.link.spawn(self._release_again())
            raise lost
        self.released = True
        retry = self.link.retry(repeated=self.link.passing)
        try:
            yield from retry.until_decided(lambda timeout: self.link.call("release", self._named, timeout))
        except (NotHeld, HeldByOther) as error:
            # The first copy of a repeated release has released it.
            if not retry.in_doubt:
                raise self._ended() from error
        except BaseException as error:
            if isinstance(error, retry.repeated) or not isinstance(error, Error):
                self.link.spawn(self._release_again())
            else:
                self.released = False
            raise

    def _release_again(self) -> Steps[None]:
        """Repeats a release that was not answered, until the lease has ended."""

        def stop() -> BaseException | None:
            return NotHeld(f"{self} has ended") if self._ends[1] <= self.link.clock() else None

        def attempt(timeout: int) -> Steps[Answer]:
            return self.link.leaving(self.link.call("release", self._named, timeout), UNDECIDED)

        yield from self.link.retry(stop, UNDECIDED, 86_400 * SECOND).until_answered(attempt)

    @property
    def _ends(self) -> tuple[int, int]:
        """The first instants, in ns of the clock, at which it may have ended and at which it has probably ended."""
        ends = [self.validity.until, *self._in_doubt.values()]
        return min(ends), max(ends)

    @property
    def _named(self) -> dict[str, Any]:
        return {"lock": self.lock, "handle": self.handle}

    def _lose(self, reason: str) -> None:
        """Records that it may have ended. Only the first reason counts."""
        if self._reason is None:
            self._reason = reason
            with suppress(Exception):
                log.error("%s has ended: %s", self, reason)

    def _ended(self) -> LockLost:
        self.released = False
        self._lose("ended")
        lost = self.lost
        assert lost is not None
        return lost


def acquire_lease(
    link: Link, lock: str, duration: int, wait: int | None, fields: dict[str, Any], metadata: Metadata
) -> Steps[LeaseState]:
    """Acquires a lease. Every copy of the request has the same id and handle, so that it is executed once."""
    handle = secrets.token_hex(16)
    named = {"lock": lock, "request": str(uuid.uuid4()), "handle": handle}
    status = yield from link.retry().until_answered(lambda timeout: link.get("/v1/status", {}, timeout))
    asked = {**fields, **metadata.fields(), **named, "lease_ms": milliseconds(duration)}
    # Copies that are 10 minutes older than this log time are refused.
    asked["since_ms"] = status.number("log_time_ms")

    def read(answer: Answer) -> LeaseState:
        return LeaseState(link, lock, handle, duration, answer)

    def send(waits: dict[str, int], timeout: int) -> Steps[Answer]:
        answer = yield from understood(link.call("acquire", {**asked, **waits}, timeout), read)
        # The cluster knows the request now, so the age of its next copies counts from here.
        asked["since_ms"] = max(asked["since_ms"], answer.log_time_ms or 0)
        return answer

    def withdraw(retry: Retry) -> Steps[Answer]:
        return retry.until_answered(
            lambda timeout: link.leaving(understood(link.call("withdraw", named, timeout), read), retry.repeated)
        )

    # The cluster remembers neither a request that has no room nor its refusal, so a late copy may be granted.
    lease = read((yield from Poll(link, send, wait, never, duration, (*UNDECIDED, Quota)).granted(withdraw)))
    lease.check()
    return lease
