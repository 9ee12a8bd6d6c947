"""The kernel's high-water mark of this process, shared by every block that is being measured.

What a memory limit counts and the kernel cannot take back is VmHWM - RssFile: file-backed pages (libraries, mapped
data) can be dropped and read again, so they are taken off. `getrusage`'s maximum cannot be set back; VmHWM can, so a
block of code is measured by itself. There is one mark a process, and blocks overlap: before it is set back, what it
says is added to the tally of every open block.

The mark tells nothing of what RssFile was when it rose. While RssFile stands still that is no question. Where it grows,
the peak lies between the mark less the most and the mark less the least that was seen of it, and every look that finds
it moved starts a new stretch, so that both stay close. Where files were unmapped since the last look, the mark is taken
to stem from before. Nothing can be seen of memory that takes the room of such files and is given back before the next
look, or that rises and falls in the microseconds between reading the mark and setting it back. The kernel counts pages
in batches, one for each core that ran this process: figures are exact to some 32 pages (128 KiB) a core.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import UnsupportedError
from lowtide.memory.status import MemoryStatus, read_status

_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_HIGH_WATER = "5"
"""The one of clear_refs' commands that sets VmHWM back to what is resident now."""
_STILL = 1 << 20
"""Bytes by which RssFile may move before a look starts a new stretch."""


@dataclass(eq=False)
class Tally:
    """What the mark says about one block, over all stretches since it was opened, in bytes."""

    start: MemoryStatus
    """The reading when the block began."""
    at_least: int = 0
    """What cannot be reclaimed was this much at its highest."""
    at_most: int = 0
    """And not more than this."""


class HighWaterMark:
    """The one mark that the kernel keeps for this process, and the blocks that are measured by it."""

    def __init__(self) -> None:
        """Start without blocks."""
        self._lock = threading.Lock()
        self._open: list[Tally] = []
        self._least_file = self._most_file = 0

    def open(self) -> Tally:
        """Set the mark back for a block that begins.

        Raises:
            UnsupportedError: If the operating system is not Linux, or does not let the mark be set back.
        """
        with self._lock:
            self._set_back(self._read())
            tally = Tally(read_status())
            self._open.append(tally)
            self._add(tally.start)
        return tally

    def look(self) -> MemoryStatus:
        """Add what the mark says now to every open block, and return the reading."""
        with self._lock:
            status = self._read()
            if self._most_file - self._least_file > _STILL:
                self._set_back(status)
        return status

    def close(self, tally: Tally) -> MemoryStatus:
        """End a block: its tally is complete. Return the last reading."""
        status = self.look()
        with self._lock:
            self._open.remove(tally)
        return status

    def set_back(self) -> None:
        """Set the mark back to what is resident now; open blocks keep what it said before.

        Raises:
            UnsupportedError: If the operating system is not Linux, or does not let the mark be set back.
        """
        with self._lock:
            self._set_back(self._read())

    def renew_lock(self) -> None:
        """After a fork, in the child: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()

    def _read(self) -> MemoryStatus:
        status = read_status()
        self._add(status)
        return status

    def _set_back(self, status: MemoryStatus) -> None:
        """Begin a new stretch, right after a reading."""
        try:
            _CLEAR_REFS.write_text(_RESET_HIGH_WATER, encoding="ascii")
        except OSError as error:
            raise UnsupportedError(
                what=f"writing to {_CLEAR_REFS} failed: {error}",
                why="without setting the high-water mark back, an earlier peak would pass for this block's",
                fix="measure in a process of its own that has not risen higher before, or outside of this sandbox",
            ) from error
        self._least_file = self._most_file = status.file

    def _add(self, status: MemoryStatus) -> None:
        self._most_file = max(self._most_file, status.file)
        surely = max(status.high_water - self._most_file, status.unreclaimable)
        possibly = max(status.high_water - self._least_file + status.swapped, surely)
        for tally in self._open:
            tally.at_least = max(tally.at_least, surely)
            tally.at_most = max(tally.at_most, possibly)
        self._least_file = min(self._least_file, status.file)


MARK = HighWaterMark()
"""The one there is."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MARK.renew_lock)


def reset_high_water() -> None:
    """Set VmHWM back to what is resident now; blocks that are being measured keep what it said before.

    Raises:
        UnsupportedError: If the operating system is not Linux, or does not let this process do so.
    """
    MARK.set_back()
