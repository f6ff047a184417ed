"""The client for asyncio."""

import asyncio
import functools
import inspect
import os
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from . import _process
from ._async_locks import AsyncHold, AsyncLease, AsyncLock
from ._tasks import Tasks
from ._watch import AsyncWatch
from .core import base, claim, keep, lease, reads
from .core.clock import SECOND
from .core.errors import InvalidArgument, NotAcquired
from .core.follow import follow
from .core.locked import check_template, name_of
from .core.reads import Row, Show
from .core.retry import Turns
from .core.session import Session as SessionState
from .core.session import open_session
from .core.settings import (
    Duration,
    LockOptions,
    Settings,
    maybe_ms,
    maybe_ns,
    to_ns,
)
from .core.watch import begin_watch

P = ParamSpec("P")
R = TypeVar("R")


class _AsyncSessions(base.BaseSessions[AsyncLock]):
    """Makes locks, and acquires them in a session."""

    def __init__(self, settings: Settings, tasks: Tasks) -> None:
        super().__init__(settings)
        self._tasks = tasks

    async def acquire(self, request: claim.LockRequest) -> AsyncHold:
        """Acquires what a lock asks for."""
        session = await self._session()
        return AsyncHold(await self._tasks.run(claim.acquire(session, request, self._settings.metadata)), self._tasks)

    @overload
    def locked(
        self, name: str, *, skip: Literal[True], wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R | None]]]: ...

    @overload
    def locked(
        self, name: str, *, skip: Literal[False] = False, wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]: ...

    def locked(
        self, name: str, *, skip: bool = False, wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R | None]]]:
        """Runs each call of a function under a lock. `{argument}` in the name is the argument of the call.

        With `skip` a call returns None if the lock is not granted in time; otherwise it raises NotAcquired.
        """

        check_template(name)

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
            name_for = name_of(name, function)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
                try:
                    hold = await self.lock(name_for(args, kwargs), wait=wait, **options).acquire()
                except NotAcquired:
                    if skip:
                        return None
                    raise
                async with hold:
                    result = function(*args, **kwargs)
                    if not inspect.isawaitable(result):
                        raise InvalidArgument(f"locked: {function!r} is no coroutine function: use Client")
                    return await result

            return call

        return decorate

    def _lock(self, request: claim.LockRequest) -> AsyncLock:
        return AsyncLock(self.acquire, request)

    async def _session(self) -> SessionState:
        raise NotImplementedError


class AsyncSession(_AsyncSessions):
    """A session that a program opens itself. The end of its `async with` block releases all its holds."""

    def __init__(self, settings: Settings, tasks: Tasks, state: SessionState) -> None:
        super().__init__(settings, tasks)
        self.state = state
        """What the client knows of the session."""
        _process.opened(state, settings.tls)
        self._background = [tasks.spawn(keep.keep(state)), tasks.spawn(follow(state))]
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The public id."""
        return self.state.id

    @property
    def valid_for(self) -> float:
        """Seconds until the session may end if no renewal is answered; 0 once it has ended."""
        return self.state.valid_for

    async def close(self) -> None:
        """Ends the session: all that it holds is released. Gives up after the request timeout of the client.

        A close that is cancelled continues in the background. A later one waits for it.
        """
        await asyncio.wait([self.begin_close()])

    def begin_close(self) -> asyncio.Task[None]:
        """Ends the holds of the session and its renewal, and returns the task that closes it."""
        self.state.end("closed", "it was closed")
        keep.report(self.state)
        for task in self._background:
            task.cancel()
        if self._closing is None or self._closing.done():
            self._closing = self._tasks.spawn(_process.close(self.state))
        return self._closing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id}: {'ended' if self.state.ended else 'open'}>"

    async def _session(self) -> SessionState:
        if (end := self.state.ended) is not None:
            raise end
        return self.state


class Opening:
    """A session that `await` or `async with` opens."""

    def __init__(self, opening: Callable[[], Awaitable[AsyncSession]]) -> None:
        self._opening = opening
        self._opened: AsyncSession | None = None

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        return self._opening().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._opened = await self._opening()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        if self._opened is not None:
            await self._opened.close()


class AsyncClient(_AsyncSessions):
    """A client of a cluster, for one event loop. It opens one session at its first lock, and closes it at its end.

    The options are those of `Client`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str] | None = None,
        namespace: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
        who: str | None = None,
        ttl: Duration | None = None,
        request_timeout: Duration = 5,
    ) -> None:
        settings = Settings(
            endpoints,
            namespace,
            token=token,
            token_file=token_file,
            tls=tls,
            who=who,
            request_timeout=request_timeout,
        )
        super().__init__(settings, Tasks(settings.link.clock, settings.tls))
        settings.link.spawn = self._tasks.spawn
        self._ttl = maybe_ns("ttl", ttl)
        self._opening = asyncio.Lock()
        self._turns = Turns(settings.link.clock)
        self._own: AsyncSession | None = None
        self._opened: list[AsyncSession] = []
        self._watches: weakref.WeakSet[AsyncWatch] = weakref.WeakSet()
        self._closed = False
        _process.replaced_in_child(self)

    def session(self, ttl: Duration | None = None, *, accepts_hand_over: bool = False) -> Opening:
        """Opens a separate session with `await` or `async with`. It ends `ttl` after its last renewal."""
        return Opening(lambda: self._open(maybe_ns("ttl", ttl), accepts_hand_over))

    async def lease(
        self,
        name: str,
        duration: Duration,
        *,
        wait: Duration | None = 0,
        shared: bool = False,
        why: str | None = None,
    ) -> AsyncLease:
        """Acquires a lock for `duration` seconds without a session. Nothing renews it automatically."""
        fields = {"mode": "shared"} if shared else {}
        length, longest = to_ns("duration", duration), maybe_ns("wait", wait)
        metadata = self._settings.metadata.because(why)
        steps = lease.acquire_lease(self._settings.link, name, length, longest, fields, metadata)
        return AsyncLease(await self._tasks.run(steps), self._tasks)

    async def leader(self, name: str) -> base.Leader | None:
        """Returns the leader of an election, or None."""
        return await self._tasks.run(base.leader(self._settings.link, name))

    async def check(self, name: str, token: int) -> bool:
        """Returns whether a fencing token is current, for a resource that cannot compare tokens."""
        return await self._tasks.run(base.check(self._settings.link, name, token))

    async def show(self, name: str) -> Row:
        """Returns one lock with its holders and waiters."""
        return await self.call("locks", lock=name)

    def locks(self, prefix: str = "", *, show: Show = "all", older_than: Duration | None = None) -> AsyncIterator[Row]:
        """Lists the locks in use, by name; with `older_than` only those that are held for at least this time."""
        return self._rows(reads.locks(self._settings.link, prefix, show, maybe_ms("older_than", older_than)))

    def history(self, name: str | None = None, *, after: str | None = None) -> AsyncIterator[Row]:
        """Lists what happened to the holders of a lock, or of all locks, after a position, from the past to now."""
        return self._rows(reads.history(self._settings.link, name, after))

    async def explain(self, name: str) -> Row:
        """Returns which client waits for which, why, and what would end it."""
        return await self.call("explain", lock=name)

    async def watch(self, prefix: str = "", *, after: str | None = None) -> AsyncWatch:
        """Follows locks whose names have a prefix, sessions and the cluster, from now on or after a position."""
        watch = AsyncWatch(await self._tasks.run(begin_watch(self._settings.link, prefix, after)), self._tasks)
        self._watches.add(watch)
        return watch

    async def ask(self, name: str, token: int, why: str) -> None:
        """Asks the holder with this fencing token to release. The holder decides."""
        await self.call("ask", lock=name, token=token, why=why)

    async def call(self, path: str, **fields: Any) -> Row:
        """Makes any other call of the HTTP interface, for example `break` or `handover`."""
        return await self._tasks.run(base.call(self._settings.link, path, fields))

    async def close(self) -> None:
        """Closes the sessions of this client: all that they hold is released.

        The bodies of their blocks are cancelled. A close that is cancelled continues in the background.
        """
        self._closed = True
        for watch in list(self._watches):
            watch.close()
        closing = [session.begin_close() for session in self._opened]
        async with self._opening:
            # From here on no other task opens a session.
            pass
        closing += [session.begin_close() for session in self._opened]
        if closing:
            await asyncio.wait(closing)
        await self._tasks.close(CLOSE_WAIT)

    def forked(self) -> None:
        """Prepares the client in the child of a fork, which calls it: the holds and sockets are the parent's."""
        self._opening = asyncio.Lock()
        self._own, self._opened = None, []
        self._tasks.forked()
        for watch in list(self._watches):
            watch.forked()
        self._watches.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        link = self._settings.link
        return f"<AsyncClient of {', '.join(map(str, link.endpoints.all))}, namespace {link.namespace}>"

    async def _rows(self, pages: reads.Pages) -> AsyncIterator[Row]:
        while (page := await self._tasks.run(pages.next())) is not None:
            for row in page:
                yield row

    async def _session(self) -> SessionState:
        asked = self._turns.clock()
        async with self._opening:
            if self._own is None or self._own.state.ended is not None:
                with self._turns.turn(asked):
                    self._own = await self._open_locked(self._ttl, False)
            return self._own.state

    async def _open(self, ttl: int | None, accepts_hand_over: bool) -> AsyncSession:
        async with self._opening:
            return await self._open_locked(ttl, accepts_hand_over)

    async def _open_locked(self, ttl: int | None, accepts_hand_over: bool) -> AsyncSession:
        if self._closed:
            raise base.closed()
        link, metadata = self._settings.link, self._settings.metadata
        state = await self._tasks.run(open_session(link, metadata, ttl, accepts_hand_over))
        opened = AsyncSession(self._settings, self._tasks, state)
        self._opened = [known for known in self._opened if _process.is_open(known.state)] + [opened]
        if self._closed:
            await opened.close()
            raise base.closed()
        return opened


CLOSE_WAIT = 2 * SECOND
"""How long a client waits for its background operations when it is closed."""
