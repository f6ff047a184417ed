"""The `with` blocks of one lock object."""

import threading
from typing import Generic, TypeVar

H = TypeVar("H")


class Blocks(Generic[H]):
    """The holds of the `with` blocks that have begun, with the thread or task in which each began."""

    def __init__(self) -> None:
        self._begun: list[tuple[object, H]] = []
        self._lock = threading.Lock()

    def begin(self, owner: object, hold: H) -> None:
        """Adds the hold of a block that begins in this thread or task."""
        with self._lock:
            self._begun.append((owner, hold))

    def end(self, owner: object) -> H:
        """Removes the hold of the block that ends in this thread or task, and returns it.

        A block may end in another one than it began, as that of a generator which another thread closes. Then this is
        the newest hold.
        """
        with self._lock:
            own = [place for place, (of, _) in enumerate(self._begun) if of == owner]
            return self._begun.pop(own[-1] if own else -1)[1]
