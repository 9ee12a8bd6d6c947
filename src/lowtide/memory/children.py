"""What the children of this process held during one block: each by its own high-water mark, as far as that was seen.

A child's mark runs from its start and is never set back here, since the child may be measuring itself. Where it moved
from one look to the next, it tells exactly how far the child rose, even if memory was given back in between; where it
did not, what the child holds at the look is taken. A child that ends takes its mark along: what it did after the last
look is lost, and so is a child that lived between two looks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from lowtide.memory.descendants import descendants, has_children, program, shared_with_others
from lowtide.memory.pace import Pace
from lowtide.memory.status import MemoryStatus, read_status_of


@dataclass
class _Child:
    """One process, as seen so far."""

    status: MemoryStatus
    shared: int
    """What others of the tree count already."""
    program: tuple[str, str] | None
    counts: bool
    """False until it is certain that this is memory of its own: between vfork and exec a child shows its parent's."""
    peak: int

    @property
    def now(self) -> int:
        """What it held at the last look beyond what is shared."""
        return max(0, self.status.unreclaimable + self.status.kernel - self.shared) if self.counts else 0

    def follow(self, status: MemoryStatus) -> None:
        """Take a newer reading in."""
        moved = status.high_water != self.status.high_water
        unseen = status.high_water - min(status.file, self.status.file) + status.swapped if moved else 0
        self.status, self.counts = status, True
        self.peak = max(self.peak, self.now, unseen + status.kernel - self.shared)


class Children:
    """All children over one block."""

    def __init__(self) -> None:
        """Take note of those that live when the block begins."""
        self._known: dict[int, _Child] = {}
        self._together: set[frozenset[int]] = set()
        self._pace = Pace()
        self.least = self.now = 0
        start = time.thread_time()
        for process, status in _living().items():
            self._meet(process, status, highest=status.unreclaimable)
        self._pace.spent(time.thread_time() - start)
        self.look()
        self.least = self.now

    @property
    def count(self) -> int:
        """How many were seen."""
        return len(self._known)

    @property
    def at_most(self) -> int:
        """The largest sum of the peaks of those that lived at the same time."""
        return max(sum(self._known[child].peak for child in alive) for alive in self._together)

    def look(self, *, thoroughly: bool = False) -> None:
        """Read all of them: `now` is what they hold together, `least` the least of that in the block.

        Args:
            thoroughly: Find out anew what each shares, which takes milliseconds for each gigabyte; otherwise only when
                it is time to.
        """
        alive, start = _living(), time.thread_time()
        anew = thoroughly or self._pace.due()
        for process, status in alive.items():
            known = self._known.get(process)
            if known is None or _started_anew(process, status, known):
                self._meet(process, status, highest=status.high_water - status.file)
                continue
            if anew:
                known.shared = shared_with_others(process, status)
            known.follow(status)
        if anew:
            self._pace.spent(time.thread_time() - start)
        self._together.add(frozenset(alive))
        self.now = sum(self._known[process].now for process in alive)
        self.least = min(self.least, self.now)

    def _meet(self, process: int, status: MemoryStatus, *, highest: int) -> None:
        shared, started = shared_with_others(process, status), program(process)
        counts = started != program()
        peak = max(0, highest + status.kernel - shared) if counts else 0
        self._known[process] = _Child(status, shared, started, counts, peak)


def _started_anew(process: int, status: MemoryStatus, known: _Child) -> bool:
    """Whether a process runs another program than at the last look. The mark falls then, or when it was set back."""
    return status.high_water < known.status.high_water and program(process) != known.program


def _living() -> dict[int, MemoryStatus]:
    readings = {process: read_status_of(process) for process in (descendants() if has_children() else [])}
    return {process: status for process, status in readings.items() if status is not None}
