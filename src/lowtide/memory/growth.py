"""How far a block of code raises the memory of this process alone: two readings of the high-water mark, no thread.

`watch` is the full measure, with children, GPUs and files that come and go. This one disturbs nothing, which is what
a benchmark wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowtide.errors import LowtideError
from lowtide.memory.high_water import MARK


class Growth:
    """How far a block raised the peak of what cannot be reclaimed; made by `growth`."""

    def __init__(self) -> None:
        """Start without a figure: there is one once the block has ended."""
        self._bytes: int | None = None

    @property
    def bytes(self) -> int:
        """The peak inside the block, above what was held when it began.

        Raises:
            LowtideError: If the block has not ended.
        """
        if self._bytes is None:
            raise LowtideError(
                what="the growth was read before its block ended",
                why="the peak may still rise, so a figure now would be too low",
                fix="read `.bytes` after the `with` block",
            )
        return self._bytes

    def _finish(self, value: int) -> None:
        self._bytes = value


@contextmanager
def growth() -> Iterator[Growth]:
    """Measure how far the block raises the peak of VmHWM - RssFile.

    One training step is not the peak: let the block hold several. Load libraries before it, since file pages that
    become resident inside the block, after its peak, are taken off that peak. Blocks may overlap, with each other and
    with those of `watch`.

    Yields:
        An object whose `bytes` holds the growth once the block has ended.

    Raises:
        UnsupportedError: If the operating system is not Linux, or does not let the mark be set back.
    """
    measured = Growth()
    tally = MARK.open()
    before = tally.at_least
    try:
        yield measured
    finally:
        MARK.close(tally)
    measured._finish(tally.at_least - before)  # noqa: SLF001 - the other half of one noun
