"""What a client knows of one hold: a lock, a set, or permits."""

import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .clock import SECOND
from .errors import InvalidArgument, LockLost, NotHeld
from .validity import Validity

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("lockkeeper_client")

OnLost = Callable[[LockLost], object]
OnAsked = Callable[[str, str], object]
F = TypeVar("F", bound=Callable[..., Any])


class HoldState:
    """One hold of a session. Its own `validity` is None if only the end of the session ends it."""

    def __init__(
        self, session: "Session", tokens: dict[str, int], validity: Validity | None, granted_at: int = 0
    ) -> None:
        self.session = session
        self.tokens = tokens
        self.validity = validity
        self.granted_at = granted_at
        """Position in the log of the grant, or of a later answer."""
        self.released = False
        self.upgrades: dict[int, bool] = {}
        """Numbers of the upgrades that may have changed the token, and whether each is withdrawn."""
        self.stream: object | None = None
        """The stream of the session that began before the hold was granted or last checked: it reports the end."""
        self.kept_by: object | None = None
        """The stream during which the session keeps the hold at the end of a use, if it is cached and not recalled."""
        self.unused_since = 0
        self._lost: LockLost | None = None
        self._unlogged = False
        self._on_lost: list[OnLost] = []
        self._on_asked: list[OnAsked] = []

    def __str__(self) -> str:
        return " and ".join(f"{name} (token {token})" for name, token in self.tokens.items())

    @property
    def token(self) -> int:
        """The fencing token. Raises InvalidArgument for a set, of which each lock has its own."""
        if len(self.tokens) != 1:
            raise InvalidArgument("token: a set has one for each lock, in `tokens`")
        return next(iter(self.tokens.values()))

    @property
    def until(self) -> int:
        """The first instant, in ns of the clock, at which another client may have it."""
        ends = self.session.validity.until
        return ends if self.validity is None else min(ends, self.validity.until)

    @property
    def lost(self) -> LockLost | None:
        """Reads the clock. Returns the error of a lost hold, or None."""
        if self._lost is None and not self.released:
            session, now = self.session, self.session.link.clock()
            if (end := session.ended) is not None:
                self.lose(end.reason, str(end))
            elif self.validity is not None and self.validity.is_passed(now):
                self.lose("time over", "its longest time is over")
        return None if self._lost is None else self._lost.again()

    @property
    def valid_for(self) -> float:
        """Seconds until another client may have it; 0 if it is lost or released."""
        if self.lost is not None or self.released:
            return 0.0
        return max(0, self.until - self.session.link.clock()) / SECOND

    def check(self) -> None:
        """Raises LockLost if another client may have it, and NotHeld if it was released."""
        if (lost := self.lost) is not None:
            raise lost
        if self.released:
            raise NotHeld(f"{self} was released")

    @property
    def ended(self) -> bool:
        """Whether a loss, or the end of the session, is recorded. Writes no log, so it may be read under a lock."""
        return self._lost is not None or self.session.has_end

    def lose(self, reason: str, detail: str, under_lock: bool = False) -> None:
        """Records that it is lost. Only the first reason counts.

        A handler of the program's log may block, or wait for another thread. So `report` writes the log for a caller
        that has the session's lock.
        """
        if self._lost is not None or self.released:
            return
        problem = {"error": "lost", "reason": reason, "token": self.token if len(self.tokens) == 1 else None}
        self._lost = LockLost(f"{self} was lost: {detail}", problem)
        self._unlogged = True
        if not under_lock:
            self._log()

    def _log(self) -> None:
        """Writes the loss to the log, once. The end of the session has its own line."""
        unlogged, self._unlogged = self._unlogged, False
        if unlogged and self.session.ended is None:
            with suppress(Exception):
                log.error("%s", self._lost)

    def on_lost(self, function: OnLost) -> None:
        """Calls the function with the error once the hold is lost; at once if it is lost already."""
        function = _plain("on_lost", function)
        with self.session.lock:
            lost = self.lost
            if lost is None:
                self._on_lost.append(function)
        if lost is not None:
            # The other functions are called from outside the body of a block, which one of them cancels.
            _run(partial(function, lost))

    def on_asked(self, function: OnAsked) -> None:
        """Calls the function with `by` and `why` when a client asks the holder to release."""
        self._on_asked.append(_plain("on_asked", function))

    def report(self) -> None:
        """Calls the functions that wait for the loss, each once, if the hold is lost."""
        if (lost := self.lost) is None:
            return
        self._log()
        with self.session.lock:
            functions, self._on_lost = self._on_lost, []
        for function in functions:
            _run(partial(function, lost.again()))

    def asked(self, by: str, why: str) -> None:
        """Reports that a client asks the holder to release."""
        for function in list(self._on_asked):
            _run(partial(function, by, why))


def _plain(field: str, function: F) -> F:
    """Refuses what cannot be called, and a coroutine function: nothing would await its calls."""
    if not callable(function):
        raise InvalidArgument(f"{field}: a function, got {function!r}")
    if inspect.iscoroutinefunction(function):
        raise InvalidArgument(f"{field}: a function that may create a task, got a coroutine function")
    return function


def _run(function: Callable[[], object]) -> None:
    """Calls a function of the program. Neither its error nor its `sys.exit()` must stop the renewal."""
    try:
        function()
    except BaseException as error:
        # Ctrl-C arrives in the main thread only, and is not an error of the function.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        # A handler of the program's log may raise, too.
        with suppress(Exception):
            log.exception("a function of the program failed")
