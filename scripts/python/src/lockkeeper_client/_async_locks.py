"""Holds, locks and leases for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import EllipsisType, TracebackType
from typing import Any, Self

from ._tasks import Tasks
from .core import base, claim, lease, release
from .core.blocks import Blocks
from .core.errors import LockLost
from .core.holds import HoldState
from .core.settings import Duration, maybe_ns


class AsyncHold(base.BaseHold):
    """A hold of a session: a lock, a set, or permits. Any task of the event loop may use and release it.

    If the hold is lost, the body of its `async with` block is cancelled, and the block raises LockLost.
    """

    def __init__(self, state: HoldState, tasks: Tasks) -> None:
        super().__init__(state)
        self._tasks = tasks
        self._body: asyncio.Task[Any] | None = None
        self._cancels_before = 0
        self._cancelled = False

    async def release(self) -> None:
        """Releases it; does nothing after the first time. Raises LockLost if it was lost.

        If no node answers in time it raises Unavailable or OutcomeUnknown. Then, and if the caller is cancelled, the
        release continues in the background. So it does after Unauthenticated if the token is in a file.
        """
        await self._tasks.run(release.release(self._state))

    async def upgrade(self, wait: Duration | None = 0) -> None:
        """Makes a shared hold exclusive, under another token, once no other client holds the lock."""
        await self._tasks.run(claim.upgrade(self._state, maybe_ns("wait", wait)))

    async def downgrade(self) -> None:
        """Makes an exclusive hold shared, at once and under the same token."""
        await self._tasks.run(claim.change(self._state, "downgrade"))

    async def set_value(self, value: str | None) -> None:
        """Changes the text that is stored with the hold; None removes it."""
        await self._tasks.run(claim.change(self._state, "value", value=value))

    async def __aenter__(self) -> Self:
        body = asyncio.current_task()
        assert body is not None
        self._cancels_before, self._cancelled = body.cancelling(), False
        self._state.on_lost(self._cancel_body)
        self._body = body
        if self._state.lost is not None:
            self._cancel(body)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        try:
            if self._cancelled and body is not None and body is asyncio.current_task():
                error = await self._own_cancel(body, error)
        except asyncio.CancelledError as cancelled:
            await self._tasks.run(release.leave(self._state, cancelled))
            raise
        await self._tasks.run(release.leave(self._state, error))

    def _cancel_body(self, lost: LockLost) -> None:
        # A body that closes its own session finishes the close. The end of the block raises the loss.
        if self._body is not None and self._body is not asyncio.current_task():
            self._cancel(self._body)

    def _cancel(self, body: asyncio.Task[Any]) -> None:
        if not self._cancelled:
            self._cancelled = True
            body.cancel()

    async def _own_cancel(self, body: asyncio.Task[Any], error: BaseException | None) -> BaseException | None:
        """Takes back the cancellation of the body. Returns its error without it, and keeps those of others."""
        delivered = isinstance(error, asyncio.CancelledError)
        if not delivered:
            # The body ended before the cancellation arrived, so it arrives here.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as cancelled:
                delivered, error = True, error or cancelled
        if body.uncancel() > self._cancels_before and delivered:
            raise error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError
        return None if isinstance(error, asyncio.CancelledError) else error


class AsyncLock:
    """A lock, a set, or permits, that `acquire` or an `async with` block acquires. It may be used again and again."""

    def __init__(
        self, acquire: Callable[[claim.LockRequest], Awaitable[AsyncHold]], request: claim.LockRequest
    ) -> None:
        self._acquire = acquire
        self._request = request
        self._blocks: Blocks[AsyncHold] = Blocks()

    async def acquire(self, wait: Duration | EllipsisType | None = ...) -> AsyncHold:
        """Acquires it. `wait` overrides the wait of this lock: 0 does not wait, and None waits without a limit.

        Raises NotAcquired if it is not granted in time. If the caller is cancelled, the request is withdrawn.
        """
        request = self._request
        if not isinstance(wait, EllipsisType):
            request = replace(request, wait=maybe_ns("wait", wait))
        return await self._acquire(request)

    async def __aenter__(self) -> AsyncHold:
        hold = await self.acquire()
        self._blocks.begin(asyncio.current_task(), hold)
        return await hold.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._blocks.end(asyncio.current_task()).__aexit__(kind, error, trace)


class AsyncLease(base.BaseLease):
    """A lock without a session. It ends after its duration unless it is refreshed."""

    def __init__(self, state: lease.LeaseState, tasks: Tasks) -> None:
        super().__init__(state)
        self._tasks = tasks

    async def refresh(self, duration: Duration | None = None) -> None:
        """Sets the end to this time from now, by default to the duration of the lease."""
        await self._tasks.run(self._state.refresh(maybe_ns("duration", duration)))

    async def release(self) -> None:
        """Releases it; does nothing after the first time. Raises LockLost if it has ended."""
        await self._tasks.run(self._state.release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.run(release.leave(self._state, error))
