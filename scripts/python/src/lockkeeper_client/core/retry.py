"""Decides when to repeat a request and when to give up."""

import random
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .clock import MILLISECOND, SECOND, Clock
from .errors import Error, Internal, InvalidArgument, NotPermitted, OutcomeUnknown, Unauthenticated, Unavailable
from .steps import NotAnswered, NotSent, Pause, Result, Step, Steps, Stop, never

PAUSE_MIN = 10 * MILLISECOND
PAUSE_MAX = SECOND
UNANSWERED: tuple[type[Error], ...] = (Unavailable, OutcomeUnknown)
"""Errors of a request that has no final answer."""
UNDECIDED: tuple[type[Error], ...] = (*UNANSWERED, Unauthenticated, NotPermitted, Internal, InvalidArgument)
"""Errors of an attempt that do not say what became of an earlier one."""
_OWN = random.SystemRandom()
"""Draws nothing from the numbers that a program may have seeded."""


class Backoff:
    """Pauses that double from 10 ms to 1 s, each shortened at random by up to a half.

    The first attempt after a lost answer has no pause: usually the node is gone, and another one is asked. The pauses
    restart only after a second without a failure.
    """

    def __init__(self, clock: Clock, draw: Callable[[], float] = _OWN.random) -> None:
        self._clock = clock
        self._draw = draw
        self._next = PAUSE_MIN
        self._over: int | None = None

    def pause(self, error: Error) -> int:
        """Returns the pause in ns before the next attempt, at least as long as the node asks for."""
        now = self._clock()
        if self._over is not None and PAUSE_MAX <= now - self._over:
            self._next, self._over = PAUSE_MIN, None
        if self._over is None and isinstance(error, OutcomeUnknown):
            self._over = now
            return 0
        jittered = self._next - int(self._draw() * self._next / 2)
        self._next = min(2 * self._next, PAUSE_MAX)
        pause = max(jittered, _asked(error))
        self._over = now + pause
        return pause


def _asked(error: Error) -> int:
    """Returns the pause in ns that the node asks for; 0 if it asks for none."""
    return int(error.problem.get("pause_ms") or 0) * MILLISECOND


def _refuses_certificate(error: Error) -> bool:
    """Whether the attempt found that the certificate of a node is not valid for it, or of an unknown authority."""
    sent = error.__cause__
    return isinstance(sent, NotSent) and isinstance(sent.__cause__, ssl.SSLCertVerificationError)


class Retry:
    """Repeats the attempts of one caller. Its patience bounds an outage, and not the whole call.

    An outage begins with the first of several successive failures. An attempt that waits for a lock may take
    `waiting()` ns before its silence is a failure. If its node is restarted meanwhile, the outage begins then. The
    errors in `repeated` are failures, and all others are answers. Each attempt gets the time within which its node must
    answer: `attempt_timeout`, or what is left of the patience.
    """

    def __init__(
        self,
        clock: Clock,
        patience: int,
        attempt_timeout: int,
        stop: Stop = never,
        repeated: tuple[type[Error], ...] = UNANSWERED,
    ) -> None:
        self.in_doubt = False
        """Whether an attempt without a final answer may have been executed."""
        self.repeated = repeated
        self._clock = clock
        self._patience = patience
        self._attempt_timeout = attempt_timeout
        self._stop = stop
        self._backoff = Backoff(clock)
        self._failing_since: int | None = None
        self._bad_certificate: str | None = None
        """What the last attempt reported that refused the certificate of a node, if no attempt was answered since."""

    def until_answered(
        self,
        attempt: Callable[[int], Steps[Result]],
        waiting: Callable[[], int] = lambda: 0,
        *,
        repeat_unknown: bool = True,
    ) -> Steps[Result]:
        """Repeats the attempt until it is answered. Raises its error if a retry cannot help or the patience is over.

        An attempt that may have been executed is not repeated if `repeat_unknown` is false.
        """
        while True:
            began = self._clock()
            due = began + waiting()
            try:
                answer = yield from attempt(max(1, min(self._attempt_timeout, self._left(began))))
            except Error as error:
                # A node may have executed a request before it failed with an internal error.
                self.in_doubt |= isinstance(error, (OutcomeUnknown, Internal))
                if not isinstance(error, self.repeated) or (self.in_doubt and not repeat_unknown):
                    raise
                if _refuses_certificate(error):
                    self._bad_certificate = str(error)
                # An attempt that was not sent did not wait.
                yield from self._pause(error, began, began if isinstance(error.__cause__, NotSent) else due)
            else:
                self._failing_since = self._bad_certificate = None
                return answer

    def until_decided(self, attempt: Callable[[int], Steps[Result]]) -> Steps[Result]:
        """Like `until_answered`, for a change. Raises OutcomeUnknown if no answer says whether it was executed."""
        try:
            return (yield from self.until_answered(attempt))
        except UNDECIDED as error:
            if not self.in_doubt or isinstance(error, OutcomeUnknown):
                raise
            raise OutcomeUnknown(f"the request may have been executed; then: {error}") from error

    def _left(self, now: int) -> int:
        """Returns what is left of the patience."""
        return self._patience if self._failing_since is None else self._patience - (now - self._failing_since)

    def _pause(self, error: Error, began: int, due: int) -> Steps[None]:
        """Waits before the next attempt. The last pause is shortened, so that an attempt is made at the end."""
        now = self._clock()
        broke = isinstance(error.__cause__, NotAnswered) or error.word == "stopping"
        # The wait worked until now, unless it was too short to say so.
        worked = broke and now < due and min(self._attempt_timeout, 2 * SECOND) <= now - began
        if self._failing_since is None or worked:
            self._failing_since = min(due, now)
        duration = self._backoff.pause(error)
        # An attempt with too little time would fail for that reason, and its error would hide the cause.
        longest = self._left(now) - self._attempt_timeout // 5
        if longest <= _asked(error):
            why = str(error)
            if self._bad_certificate not in (None, why):
                # The certificate is the cause that the user can correct. The error of the last attempt would hide it.
                why = f"{self._bad_certificate}; the last attempt: {why}"
            if self.in_doubt and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(f"an earlier attempt may have been executed; then: {why}") from error
            if why == str(error):
                raise error
            raise type(error)(why, error.problem) from error
        yield from pause(min(duration, longest), self._clock, self._stop)


class Turns:
    """Attempts that callers make one after another. A caller that waited during a whole one shares its error.

    Otherwise an outage would last the request timeout for each of them, one after another.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._failed: tuple[int, Error] | None = None
        """When the last failed attempt began, and its error."""

    @contextmanager
    def turn(self, asked: int) -> Generator[None, None, None]:
        """Surrounds the attempt of a caller that has waited for its turn since `asked`."""
        if self._failed is not None and asked <= self._failed[0]:
            raise self._failed[1].again()
        began, self._failed = self.clock(), None
        try:
            yield
        except UNANSWERED as error:
            self._failed = began, error.again()
            raise


def pause(duration: int, clock: Clock, stop: Stop) -> Steps[None]:
    """Sleeps for `duration` ns of the clock, in steps that are short enough to read it."""
    end = clock() + duration
    while (left := end - clock()) > 0:
        step: Step = Pause(min(left, SECOND), stop)
        yield step
