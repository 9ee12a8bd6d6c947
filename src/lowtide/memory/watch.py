"""`watch`: the highest that this process and its children rose over a block of code.

On Linux this process goes by the kernel's own high-water mark, children by theirs, and a thread looks every few
milliseconds at what no mark tells: files that are mapped and unmapped, children that come and go, page tables.
Elsewhere that thread samples resident memory, which misses what happens between two looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lowtide.errors import UnsupportedError
from lowtide.memory.children import Children
from lowtide.memory.cuda import MARKS
from lowtide.memory.groups import kernel_charge
from lowtide.memory.high_water import MARK, Tally
from lowtide.memory.peak import Peak
from lowtide.memory.resident import resident_in_tree
from lowtide.memory.sampler import Sampler
from lowtide.memory.sizes import in_words
from lowtide.memory.status import MemoryStatus

_PAGES = 2 << 20
"""Bounds this close together count as equal: the kernel counts in batches, and RssFile moves a little all the time."""
_PAGE_TABLE_SHARE = 512
"""A page of 4 KiB has an entry of 8 bytes in a page table."""


class _Measure(Protocol):
    """A way to find the peak of the tree."""

    def look(self) -> None:
        """Read what there is to read."""

    def finish(self, peak: Peak) -> None:
        """End, and fill the peak's figures."""


@contextmanager
def watch() -> Iterator[Peak]:
    """Measure the highest that this process, its children and its GPUs rise in the block.

    One training step is not the peak: let the block hold several. Blocks may overlap, in one thread or in several.
    Measuring takes below 1 % of one core. Figures are there also if the block raises.

    On Linux this process's own peak is exact (some pages a core). Children's are exact up to the last look at each,
    and added up where they live at the same time, though they may not have peaked at the same time. On macOS and
    Windows the figures are sampled: a peak between two looks is missed, and a limit needs more room above them.

    Yields:
        A `Peak`, filled once the block has ended.
    """
    peak = Peak()
    measure = _begin()
    gpus = MARKS.open()
    sampler = Sampler(measure.look)
    sampler.start()
    try:
        yield peak
    finally:
        try:
            sampler.stop()
        finally:
            peak.cuda = MARKS.close(gpus)
            measure.finish(peak)


def _begin() -> _Measure:
    try:
        return _Marked(MARK.open())
    except UnsupportedError as error:
        return _Sampled(error.what)


class _Marked:
    """By the marks that the kernel keeps for each process."""

    def __init__(self, own: Tally) -> None:
        self._own = own
        self._children = Children()
        self._together = self._kernel = 0
        self._fullest = own.start
        self._take(own.start)
        self._start = self._together + own.start.kernel

    def look(self) -> None:
        self._children.look()
        self._take(MARK.look())

    def finish(self, peak: Peak) -> None:
        self._take(MARK.close(self._own))
        self._children.look(thoroughly=True)
        own, children = self._own, self._children
        # Memory that no look saw had its page tables, too.
        kernel = self._kernel + max(0, own.at_most - self._fullest.unreclaimable) // _PAGE_TABLE_SHARE
        peak.at_least = kernel + max(own.at_least + children.least, self._together)
        peak.bytes = max(kernel + own.at_most + children.at_most, peak.at_least)
        peak.exact = peak.bytes - peak.at_least <= _PAGES
        peak.method = self._method()
        peak.start = self._start
        peak.children = children.at_most
        peak.kernel, peak.shared, peak.file = kernel, self._fullest.shared, self._fullest.file
        peak.anonymous = peak.bytes - peak.children - peak.kernel - peak.shared
        peak.group_kernel = kernel_charge()

    def _take(self, status: MemoryStatus) -> None:
        self._kernel = max(self._kernel, status.kernel)
        self._together = max(self._together, status.unreclaimable + self._children.now)
        if status.unreclaimable > self._fullest.unreclaimable:
            self._fullest = status

    def _method(self) -> str:
        parts = ["the kernel's high-water mark"]
        moved = self._own.at_most - self._own.at_least
        if moved > _PAGES:
            parts.append(f"mapped files or swap moved by {in_words(moved)} while it rose")
        if self._children.count:
            parts.append(
                f"{self._children.count} children by their own marks as of the last look at each, added up where they "
                "lived at the same time"
            )
        return "; ".join(parts)


class _Sampled:
    """By looking at resident memory now and then."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._start = self._highest = resident_in_tree()

    def look(self) -> None:
        self._highest = max(self._highest, resident_in_tree())

    def finish(self, peak: Peak) -> None:
        self.look()
        peak.bytes = peak.at_least = peak.anonymous = self._highest
        peak.exact = False
        peak.method = f"resident memory, sampled: peaks between two looks are missed ({self._reason})"
        peak.start = self._start
        peak.shared = peak.kernel = peak.file = peak.children = 0
        peak.group_kernel = None
