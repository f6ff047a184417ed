"""Holds, locks and leases for threads."""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import EllipsisType, TracebackType
from typing import Self

from ._threads import Threads
from .core import base, claim, lease, release
from .core.blocks import Blocks
from .core.holds import HoldState
from .core.settings import Duration, maybe_ns


class Hold(base.BaseHold):
    """A hold of a session: a lock, a set, or permits. Any thread may use and release it."""

    def __init__(self, state: HoldState, threads: Threads) -> None:
        super().__init__(state)
        self._threads = threads

    def release(self) -> None:
        """Releases it; does nothing after the first time. Raises LockLost if it was lost.

        If no node answers in time it raises Unavailable or OutcomeUnknown, and the release continues in the background.
        So it does after Unauthenticated if the token is in a file.
        """
        self._threads.run(release.release(self._state))

    def upgrade(self, wait: Duration | None = 0) -> None:
        """Makes a shared hold exclusive, under another token, once no other client holds the lock."""
        self._threads.run(claim.upgrade(self._state, maybe_ns("wait", wait)))

    def downgrade(self) -> None:
        """Makes an exclusive hold shared, at once and under the same token."""
        self._threads.run(claim.change(self._state, "downgrade"))

    def set_value(self, value: str | None) -> None:
        """Changes the text that is stored with the hold; None removes it."""
        self._threads.run(claim.change(self._state, "value", value=value))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.run(release.leave(self._state, error))


class Lock:
    """A lock, a set, or permits, that `acquire` or a `with` block acquires. One object may be used again and again."""

    def __init__(self, acquire: Callable[[claim.LockRequest], Hold], request: claim.LockRequest) -> None:
        self._acquire = acquire
        self._request = request
        self._blocks: Blocks[Hold] = Blocks()

    def acquire(self, wait: Duration | EllipsisType | None = ...) -> Hold:
        """Acquires it. `wait` overrides the wait of this lock: 0 does not wait, and None waits without a limit.

        Raises NotAcquired if it is not granted in time.
        """
        request = self._request
        if not isinstance(wait, EllipsisType):
            request = replace(request, wait=maybe_ns("wait", wait))
        return self._acquire(request)

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._blocks.begin(threading.get_ident(), hold)
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.end(threading.get_ident()).__exit__(kind, error, trace)


class Lease(base.BaseLease):
    """A lock without a session. It ends after its duration unless it is refreshed."""

    def __init__(self, state: lease.LeaseState, threads: Threads) -> None:
        super().__init__(state)
        self._threads = threads

    def refresh(self, duration: Duration | None = None) -> None:
        """Sets the end to this time from now, by default to the duration of the lease."""
        self._threads.run(self._state.refresh(maybe_ns("duration", duration)))

    def release(self) -> None:
        """Releases it; does nothing after the first time. Raises LockLost if it has ended."""
        self._threads.run(self._state.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.run(release.leave(self._state, error))
