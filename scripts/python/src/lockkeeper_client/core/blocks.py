"""The `with` blocks of one lock object."""

from contextlib import suppress
from typing import Generic, TypeVar

H = TypeVar("H")


class Blocks(Generic[H]):
    """The holds of the `with` blocks that have begun, with the thread or task in which each began.

    There is no lock, because a handler of signals may interrupt the thread that has it, and a fork may copy it locked.
    """

    def __init__(self) -> None:
        self._begun: list[tuple[object, H]] = []

    def begin(self, owner: object, hold: H) -> None:
        """Adds the hold of a block that begins in this thread or task."""
        self._begun.append((owner, hold))

    def end(self, owner: object) -> H:
        """Removes the hold of the block that ends in this thread or task, and returns it.

        A block may end in another one than it began, as that of a generator which another thread closes. Then this is
        the newest hold.
        """
        while True:
            begun = self._begun.copy()
            block = next((block for block in reversed(begun) if block[0] == owner), begun[-1])
            # If it is gone, another thread has ended it.
            with suppress(ValueError):
                self._begun.remove(block)
                return block[1]
