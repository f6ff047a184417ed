"""Clocks that continue while the machine sleeps."""

import sys
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns nanoseconds since an arbitrary point in the past."""

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
LONGEST_SLEEP = SECOND
"""Timers do not count suspend, so no sleep is longer and the clock is read after each."""


def _suspend_clock() -> Clock:
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(sys.platform)
    clock = getattr(time, name, None) if name else None
    if clock is None:
        return time.monotonic_ns
    return lambda: time.clock_gettime_ns(clock)


boot_clock: Clock = _suspend_clock()
"""CLOCK_BOOTTIME on Linux and CLOCK_MONOTONIC on macOS, which both count suspend; otherwise `time.monotonic_ns`."""
