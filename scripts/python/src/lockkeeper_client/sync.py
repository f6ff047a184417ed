"""The client for threads."""

import functools
import inspect
import os
import ssl
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from . import _process
from ._locks import Hold, Lease, Lock
from ._threads import Threads, Wake, exiting
from ._watch import Watch
from .core import base, claim, keep, lease, reads
from .core.errors import InvalidArgument, NotAcquired, Unavailable
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


class _Sessions(base.BaseSessions[Lock]):
    """Makes locks, and acquires them in a session."""

    def __init__(self, settings: Settings, threads: Threads) -> None:
        super().__init__(settings)
        self._threads = threads

    def acquire(self, request: claim.LockRequest) -> Hold:
        """Acquires what a lock asks for."""
        state = self._threads.run(claim.acquire(self._session(), request, self._settings.metadata))
        return Hold(state, self._threads)

    @overload
    def locked(
        self, name: str, *, skip: Literal[True], wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    @overload
    def locked(
        self, name: str, *, skip: Literal[False] = False, wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def locked(
        self, name: str, *, skip: bool = False, wait: Duration | None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Runs each call of a function under a lock. `{argument}` in the name is the argument of the call.

        With `skip` a call returns None if the lock is not granted in time; otherwise it raises NotAcquired.
        """

        check_template(name)

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            name_for = name_of(name, function)
            if inspect.iscoroutinefunction(function):
                raise InvalidArgument(f"locked: {function!r} is a coroutine function: use AsyncClient")

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
                try:
                    hold = self.lock(name_for(args, kwargs), wait=wait, **options).acquire()
                except NotAcquired:
                    if skip:
                        return None
                    raise
                with hold:
                    result = function(*args, **kwargs)
                    if inspect.isawaitable(result):
                        if inspect.iscoroutine(result):
                            result.close()
                        raise InvalidArgument(f"locked: {function!r} returns what runs later: use AsyncClient")
                    return result

            return call

        return decorate

    def _lock(self, request: claim.LockRequest) -> Lock:
        return Lock(self.acquire, request)

    def _session(self) -> SessionState:
        raise NotImplementedError


class Session(_Sessions):
    """A session that a program opens itself. The end of its `with` block releases all its holds."""

    def __init__(self, settings: Settings, threads: Threads, state: SessionState) -> None:
        super().__init__(settings, threads)
        self.state = state
        """What the client knows of the session."""
        self._wakes = [Wake(), Wake()]
        _process.opened(state, settings.tls)
        if not (threads.spawn(keep.keep(state), self._wakes[0], "lockkeeper-keep") or exiting()):
            self.close()
            raise Unavailable("no thread can be started, so nothing would renew the session")
        if not threads.spawn(follow(state), self._wakes[1], "lockkeeper-follow"):
            # No cached acquire waits for the stream.
            state.first_stream = False

    @property
    def id(self) -> str:
        """The public id."""
        return self.state.id

    @property
    def valid_for(self) -> float:
        """Seconds until the session may end if no renewal is answered; 0 once it has ended."""
        return self.state.valid_for

    def close(self) -> None:
        """Ends the session: all that it holds is released. Gives up after the request timeout of the client.

        A close that is interrupted, for example by Ctrl-C, continues in the background.
        """
        try:
            self.end()
            self._threads.run(_process.close(self.state))
        except BaseException:
            self.end()
            self._threads.spawn(_process.close(self.state))
            raise

    def end(self) -> None:
        """Ends the holds of the session and its renewal, as `close` does at first."""
        if self.state.ended is None:
            self.state.end("closed", "it was closed")
            for wake in self._wakes:
                wake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id}: {'ended' if self.state.ended else 'open'}>"

    def _session(self) -> SessionState:
        if (end := self.state.ended) is not None:
            raise end
        return self.state


class Client(_Sessions):
    """A client of a cluster. It opens one session at its first lock, and closes it at its end.

    `endpoints` are the HTTP addresses of the nodes, by default those of LOCKKEEPER_HTTP, or loopback. `token_file` is
    the file with the token of the client, by default that of LOCKKEEPER_AUTH_TOKEN_FILE, which is read for each
    request; `token` is the token itself. `tls` is the context for addresses that begin with `https`. `request_timeout`
    bounds how long a call works on an outage; it never shortens a wait for a lock.
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
        super().__init__(settings, Threads(settings.link.clock, settings.tls))
        settings.link.spawn = self._threads.spawn
        self._ttl = maybe_ns("ttl", ttl)
        # A handler of signals may close the client while it opens its session.
        self._opening = threading.RLock()
        self._turns = Turns(settings.link.clock)
        self._own: Session | None = None
        self._opened: list[Session] = []
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._closed = False
        _process.replaced_in_child(self)

    def session(self, ttl: Duration | None = None, *, accepts_hand_over: bool = False) -> Session:
        """Opens a separate session, which ends `ttl` after its last renewal."""
        return self._open(maybe_ns("ttl", ttl), accepts_hand_over)

    def lease(
        self,
        name: str,
        duration: Duration,
        *,
        wait: Duration | None = 0,
        shared: bool = False,
        why: str | None = None,
    ) -> Lease:
        """Acquires a lock for `duration` seconds without a session. Nothing renews it automatically."""
        fields = {"mode": "shared"} if shared else {}
        length, longest = to_ns("duration", duration), maybe_ns("wait", wait)
        metadata = self._settings.metadata.because(why)
        steps = lease.acquire_lease(self._settings.link, name, length, longest, fields, metadata)
        return Lease(self._threads.run(steps), self._threads)

    def leader(self, name: str) -> base.Leader | None:
        """Returns the leader of an election, or None."""
        return self._threads.run(base.leader(self._settings.link, name))

    def check(self, name: str, token: int) -> bool:
        """Returns whether a fencing token is current, for a resource that cannot compare tokens."""
        return self._threads.run(base.check(self._settings.link, name, token))

    def show(self, name: str) -> Row:
        """Returns one lock with its holders and waiters."""
        return self.call("locks", lock=name)

    def locks(self, prefix: str = "", *, show: Show = "all", older_than: Duration | None = None) -> Iterator[Row]:
        """Lists the locks in use, by name; with `older_than` only those that are held for at least this time."""
        return self._rows(reads.locks(self._settings.link, prefix, show, maybe_ms("older_than", older_than)))

    def history(self, name: str | None = None, *, after: str | None = None) -> Iterator[Row]:
        """Lists what happened to the holders of a lock, or of all locks, after a position, from the past to now."""
        return self._rows(reads.history(self._settings.link, name, after))

    def explain(self, name: str) -> Row:
        """Returns which client waits for which, why, and what would end it."""
        return self.call("explain", lock=name)

    def watch(self, prefix: str = "", *, after: str | None = None) -> Watch:
        """Follows locks whose names have a prefix, sessions and the cluster, from now on or after a position."""
        watch = Watch(self._threads.run(begin_watch(self._settings.link, prefix, after)), self._threads)
        self._watches.add(watch)
        return watch

    def ask(self, name: str, token: int, why: str) -> None:
        """Asks the holder with this fencing token to release. The holder decides."""
        self.call("ask", lock=name, token=token, why=why)

    def call(self, path: str, **fields: Any) -> Row:
        """Makes any other call of the HTTP interface, for example `break` or `handover`."""
        return self._threads.run(base.call(self._settings.link, path, fields))

    def close(self) -> None:
        """Closes the sessions of this client: all that they hold is released.

        A close that is interrupted, for example by Ctrl-C, continues in the background.
        """
        try:
            self._closed = True
            for opened in self._opened:
                opened.end()
            with self._opening:
                # From here on no other thread opens a session.
                pass
            for watch in list(self._watches):
                watch.close()
            for opened in self._opened:
                self._threads.run(_process.close(opened.state))
        except BaseException:
            for opened in self._opened:
                opened.end()
                self._threads.spawn(_process.close(opened.state))
            raise
        self._threads.close_idle()

    def forked(self) -> None:
        """Prepares the client in the child of a fork, which calls it: the holds and sockets are the parent's."""
        self._opening = threading.RLock()
        self._own, self._opened = None, []
        self._threads.forked()
        for watch in list(self._watches):
            watch.forked()
        self._watches.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        link = self._settings.link
        return f"<Client of {', '.join(map(str, link.endpoints.all))}, namespace {link.namespace}>"

    def _rows(self, pages: reads.Pages) -> Iterator[Row]:
        while (page := self._threads.run(pages.next())) is not None:
            yield from page

    def _session(self) -> SessionState:
        asked = self._turns.clock()
        with self._opening:
            if self._own is None or self._own.state.ended is not None:
                with self._turns.turn(asked):
                    self._own = self._open_locked(self._ttl, False)
            return self._own.state

    def _open(self, ttl: int | None, accepts_hand_over: bool) -> Session:
        with self._opening:
            return self._open_locked(ttl, accepts_hand_over)

    def _open_locked(self, ttl: int | None, accepts_hand_over: bool) -> Session:
        if self._closed:
            raise base.closed()
        link, metadata = self._settings.link, self._settings.metadata
        state = self._threads.run(open_session(link, metadata, ttl, accepts_hand_over))
        opened = Session(self._settings, self._threads, state)
        self._opened = [known for known in self._opened if _process.is_open(known.state)] + [opened]
        if self._closed:
            opened.close()
            raise base.closed()
        return opened
