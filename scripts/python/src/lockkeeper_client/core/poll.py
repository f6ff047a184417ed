"""Requests that may wait in the queue: they are polled until they are granted, refused, or their wait is over."""

from collections.abc import Callable
from typing import Any

from .clock import MILLISECOND, SECOND
from .errors import Error, NotAcquired, OutcomeUnknown
from .link import Answer, Link, milliseconds
from .retry import UNDECIDED, Retry
from .steps import Steps, Stop

POLL_MAX = 10 * SECOND
"""A node that stopped silently is noticed after this time and the request timeout."""
WAIT_MAX = 7 * 24 * 60 * 60 * SECOND
"""In a session this wait lasts as long as the session."""
LATE_MAX = 30 * SECOND
"""How late a copy of a request may arrive that a withdrawal waits for."""
TRY_MAX = SECOND // 2
"""A node lets a request without a wait stand for this long behind a cached hold, which may be released."""
LAST_POLL_SLACK = 5 * SECOND
"""A node lets the last poll of a wait last longer, so that the cluster decides the end of the wait."""

Send = Callable[[dict[str, int], int], Steps[Answer]]
"""Makes one attempt with the fields of the wait, within a timeout in ns."""
Withdraw = Callable[[Retry], Steps[Answer]]
"""Withdraws the request. The answer is the grant of one that was granted before and that cannot be withdrawn."""


class Poll:
    """One request, which `send` sends again and again. `wait` is in ns; None waits as long as possible.

    A grant ends after `lasts` ns without a release. Errors in `undecided` do not say what became of an earlier attempt.
    """

    def __init__(
        self,
        link: Link,
        send: Send,
        wait: int | None,
        stop: Stop,
        lasts: int = WAIT_MAX,
        undecided: tuple[type[Error], ...] = UNDECIDED,
    ) -> None:
        self._link = link
        self._send = send
        self._stop = stop
        self._lasts = lasts
        self._undecided = undecided
        self._ends = None if wait is None else link.clock() + wait
        self._retry = link.retry(stop)
        self._held_by: Any = None

    def granted(self, withdraw: Withdraw) -> Steps[Answer]:
        """Returns the grant. A request that ends otherwise leaves neither a place nor a hold.

        One that may have been executed, and has no final answer, raises OutcomeUnknown and is withdrawn in the
        background.
        """
        try:
            answer = yield from self._settle()
            if answer is None:
                # The caller may rely on the end of the wait only after the request is gone.
                answer = yield from withdraw(self._link.retry(self._stop, self._undecided))
                if not is_grant(answer):
                    raise NotAcquired("the wait is over", {"holder": self._held_by})
        except Error as error:
            if not (self._retry.in_doubt and isinstance(error, self._undecided)):
                raise
            self._withdraw_later(withdraw)
            if isinstance(error, OutcomeUnknown):
                raise
            raise OutcomeUnknown(f"the request may have been executed; then: {error}") from error
        except BaseException:
            self._withdraw_later(withdraw)
            raise
        return answer

    def _withdraw_later(self, withdraw: Withdraw) -> None:
        """Withdraws in the background, where no caller could do it again.

        Only a final answer ends it, or the time after which neither a place nor a hold can be left.
        """
        patience = min(WAIT_MAX, self._left + self._lasts + LATE_MAX)
        self._link.spawn(withdraw(self._link.retry(self._stop, self._undecided, patience)))

    @property
    def _left(self) -> int:
        return WAIT_MAX if self._ends is None else max(0, self._ends - self._link.clock())

    def _settle(self) -> Steps[Answer | None]:
        while True:
            try:
                answer = yield from self._retry.until_answered(self._attempt, lambda: _waiting(self._left))
            except NotAcquired as error:
                if error.holder is None and self._held_by is not None:
                    raise NotAcquired(error.detail, {**error.problem, "holder": self._held_by}) from error
                raise
            if is_grant(answer):
                return answer
            # The request was executed, and has its place.
            self._retry.in_doubt = True
            self._held_by = answer.body.get("held_by") or self._held_by
            if self._left == 0:
                return None

    def _attempt(self, timeout: int) -> Steps[Answer]:
        left = self._left
        waits = {"wait_ms": milliseconds(left), "poll_ms": milliseconds(min(left, POLL_MAX))}
        return self._send({} if left < MILLISECOND else waits, _waiting(left) + timeout)


def _waiting(left: int) -> int:
    """Returns how long a node may let a request wait before it answers, if `left` ns of the wait are left."""
    if left < MILLISECOND:
        return TRY_MAX
    return POLL_MAX if POLL_MAX < left else left + LAST_POLL_SLACK


def is_grant(answer: Answer) -> bool:
    """Whether the request of this answer is granted."""
    return answer.body.get("state") == "granted"


def understood(attempt: Steps[Answer], read: Callable[[Answer], object]) -> Steps[Answer]:
    """Makes an attempt. Raises Internal, so that the request is in doubt, if `read` does not understand its grant."""
    answer = yield from attempt
    if is_grant(answer):
        read(answer)
    return answer
