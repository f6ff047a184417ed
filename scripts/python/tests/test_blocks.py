"""The `with` blocks of one lock object that a handler of signals or another thread uses at the same time."""

import threading
from collections.abc import Callable

from nodes import PATIENCE

from lockkeeper_client.core.blocks import Blocks


class _Owner:
    """A thread that something interrupts once, while the end of its block looks for it."""

    def __init__(self, interruption: Callable[[], object]) -> None:
        self._interruptions = [interruption]

    def __eq__(self, other: object) -> bool:
        if self._interruptions:
            self._interruptions.pop()()
        return self is other

    __hash__ = None  # type: ignore[assignment]


def _in_time(scenario: Callable[[], None]) -> None:
    """Calls a function that may never return."""
    done = threading.Event()

    def work() -> None:
        scenario()
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(PATIENCE)


def test_a_handler_of_signals_uses_the_lock_of_a_block_that_ends() -> None:
    """The handler interrupts the end of a block, and has a block of the same lock: each gets its own hold."""
    blocks: Blocks[str] = Blocks()
    handled: list[str] = []

    def handler() -> None:
        blocks.begin(owner, "of the handler")
        handled.append(blocks.end(owner))

    owner = _Owner(handler)

    def scenario() -> None:
        blocks.begin(owner, "of the program")
        assert blocks.end(owner) == "of the program"

    _in_time(scenario)
    assert handled == ["of the handler"]


def test_two_threads_end_blocks_that_others_began() -> None:
    """A thread ends the newest block while another one is about to end it, too: each gets another hold."""
    blocks: Blocks[str] = Blocks()
    first: list[str] = []
    late = _Owner(lambda: first.append(blocks.end("early")))

    def scenario() -> None:
        blocks.begin("a", "older")
        blocks.begin("a", "newer")
        assert blocks.end(late) == "older"

    _in_time(scenario)
    assert first == ["newer"]
