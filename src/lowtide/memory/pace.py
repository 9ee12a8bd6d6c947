"""When to look again, so that looking costs next to nothing."""

from __future__ import annotations

import time

SHARE = 200
"""Looking takes at most one part in this many of the time of one core."""


class Pace:
    """Lets something happen again once many times as long has passed as it took."""

    def __init__(self) -> None:
        """Due at once."""
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._next

    def spent(self, seconds: float) -> None:
        """It happened, and took this long."""
        self._next = time.monotonic() + SHARE * seconds
