"""Watches for threads and for asyncio."""

import threading
from types import TracebackType
from typing import Self

from . import _tasks, _threads
from .core.driver import disconnect
from .core.reads import Row
from .core.watch import WatchState


class Watch:
    """What happens to the locks of a namespace, to its sessions and to the cluster: an iterator of events.

    It continues at another node when one fails, without loss or repetition. It raises EventsMissed if the cluster no
    longer has some events, and Unavailable if no node answers in time; after both, iterate again to continue.
    """

    def __init__(self, state: WatchState, threads: _threads.Threads) -> None:
        self._state = state
        self._threads = threads
        self._stream: list[_threads.Connection] = []
        self._turn = threading.RLock()

    @property
    def position(self) -> str:
        """The position of the last event, after which another watch can continue."""
        return self._state.position

    def close(self) -> None:
        """Ends the iteration, also one in another thread.

        It waits until that thread notices: up to a second, or as long as its attempt to connect lasts.
        """
        self._state.closed = True
        with self._turn:
            disconnect(self._stream)

    def forked(self) -> None:
        """Ends the iteration in the child of a fork, in which no thread iterates. The stream is the parent's."""
        self._state.closed = self._state.forked = True
        self._turn = threading.RLock()
        self._stream = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        with self._turn:
            event = self._threads.run(self._state.next(), stream=self._stream)
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncWatch:
    """What happens to the locks of a namespace, to its sessions and to the cluster: an asynchronous iterator of events.

    It continues at another node when one fails, without loss or repetition. It raises EventsMissed if the cluster no
    longer has some events, and Unavailable if no node answers in time; after both, iterate again to continue.
    """

    def __init__(self, state: WatchState, tasks: _tasks.Tasks) -> None:
        self._state = state
        self._tasks = tasks
        self._stream: list[_tasks.Connection] = []

    @property
    def position(self) -> str:
        """The position of the last event, after which another watch can continue."""
        return self._state.position

    def close(self) -> None:
        """Ends the iteration, also one in another task."""
        self._state.closed = True
        disconnect(self._stream)

    def forked(self) -> None:
        """Ends the iteration in the child of a fork. The stream is the parent's."""
        self._state.closed = self._state.forked = True
        self._stream = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        event = await self._tasks.run(self._state.next(), self._stream)
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
