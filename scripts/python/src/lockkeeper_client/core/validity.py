"""How long a session, hold or lease certainly lasts, by the client's own clock."""

from dataclasses import dataclass

from .clock import MILLISECOND

MARGIN_LEFT_PERMILLE = 990
"""Clocks may run at rates that differ by one per cent."""


@dataclass(frozen=True, slots=True)
class Proof:
    """An answered attempt: sent at `sent` ns, applied at the log time `stamp_ms`, and it set the end `deadline_ms`.

    `index` is the position of its entry in the log, and orders entries with the same stamp.
    """

    sent: int
    index: int
    stamp_ms: int
    deadline_ms: int

    @property
    def relation(self) -> int:
        """Difference between the clock and log time that this answer proves, in thousandths of a nanosecond."""
        return self.sent * 1_000 - self.stamp_ms * MILLISECOND * MARGIN_LEFT_PERMILLE


class Validity:
    """The client's view of a deadline in log time.

    Log time never runs ahead of real time, and had not reached the stamp before the attempt was sent. So the cluster
    cannot pass the deadline before `sent + 0.99 * (deadline - stamp)`. Every answer proves such a bound, and the
    latest one is used. Of several deadlines the one with the newest stamp is valid, even if it is an earlier one. A
    deadline that has passed remains passed.
    """

    def __init__(self, first: Proof) -> None:
        self._relation = first.relation
        self._newest = (first.stamp_ms, first.index)
        self._deadline_ms = first.deadline_ms
        self._passed = False
        self.answered = first.sent
        """When the newest answered attempt was sent."""

    @property
    def until(self) -> int:
        """The first instant, in ns of the clock, at which the deadline may have passed."""
        return (self._relation + self._deadline_ms * MILLISECOND * MARGIN_LEFT_PERMILLE) // 1_000

    def add(self, proof: Proof, now: int) -> None:
        """Applies another answer. Answers may arrive in any order; one that arrives after the end changes nothing."""
        if self.is_passed(now):
            return
        self._relation = max(self._relation, proof.relation)
        entry = (proof.stamp_ms, proof.index)
        if self._newest < entry:
            self._newest, self._deadline_ms = entry, proof.deadline_ms
        elif entry == self._newest:
            self._deadline_ms = min(self._deadline_ms, proof.deadline_ms)
        self.answered = max(self.answered, proof.sent)

    def is_passed(self, now: int) -> bool:
        """Whether the deadline may have passed. Once true it remains true."""
        self._passed = self._passed or self.until <= now
        return self._passed

    def left(self, now: int) -> int:
        """Nanoseconds until the deadline may have passed; 0 once it has."""
        return 0 if self.is_passed(now) else self.until - now
