"""How high this process's memory rose: the kernel's own figures, on Linux.

What a memory limit counts and the kernel cannot take back is VmHWM - RssFile: file-backed pages (libraries, mapped
data) can be dropped and read again, so they are taken off. `getrusage`'s maximum cannot be set back; VmHWM can, so a
block of code is measured by itself. The kernel counts pages in batches, one for each core that ran this process:
figures are exact to some 32 pages (128 KiB) a core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import LowtideError, UnsupportedError

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_HIGH_WATER = "5"
"""The one of clear_refs' commands that sets VmHWM back to what is resident now."""


@dataclass(frozen=True)
class MemoryStatus:
    """One reading of this process's memory, in bytes."""

    high_water: int
    """VmHWM: the most that was resident since the start or the last reset."""
    anonymous: int
    """RssAnon: resident pages that belong to no file."""
    file: int
    """RssFile: resident pages of mapped files, which the kernel can take back."""
    shared: int
    """RssShmem: resident pages of shared memory."""
    data: int
    """VmData: private writable address space, touched or not; what RLIMIT_DATA counts."""

    @property
    def unreclaimable_peak(self) -> int:
        """The high-water mark without what the kernel could take back."""
        return self.high_water - self.file


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


def read_status() -> MemoryStatus:
    """Read this process's memory figures.

    Raises:
        UnsupportedError: If the operating system is not Linux.
    """
    _require_linux()
    sizes = {}
    for line in _STATUS.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            sizes[name] = int(value.removesuffix(" kB")) * 1024
    return MemoryStatus(
        high_water=sizes["VmHWM"],
        anonymous=sizes["RssAnon"],
        file=sizes["RssFile"],
        shared=sizes["RssShmem"],
        data=sizes["VmData"],
    )


def reset_high_water() -> None:
    """Set VmHWM back to what is resident now.

    Raises:
        UnsupportedError: If the operating system is not Linux, or does not let this process do so.
    """
    _require_linux()
    try:
        _CLEAR_REFS.write_text(_RESET_HIGH_WATER, encoding="ascii")
    except OSError as error:
        raise UnsupportedError(
            what=f"writing to {_CLEAR_REFS} failed: {error}",
            why="without setting the high-water mark back, an earlier peak would pass for this block's",
            fix="measure in a process of its own that has not risen higher before, or outside of this sandbox",
        ) from error


@contextmanager
def growth() -> Iterator[Growth]:
    """Measure how far the block raises the peak of VmHWM - RssFile.

    One training step is not the peak: let the block hold several. Load libraries before it, since file pages that
    become resident inside the block, after its peak, are taken off that peak. Blocks do not nest: an inner one sets
    the mark of the outer one back.

    Yields:
        An object whose `bytes` holds the growth once the block has ended.

    Raises:
        UnsupportedError: If the operating system is not Linux, or does not let the mark be set back.
    """
    measured = Growth()
    reset_high_water()
    before = read_status().unreclaimable_peak
    yield measured
    measured._finish(read_status().unreclaimable_peak - before)  # noqa: SLF001 - the other half of one noun


def _require_linux() -> None:
    if sys.platform != "linux":
        raise UnsupportedError(
            what=f"memory high-water marks were asked for on {sys.platform}",
            why="only Linux keeps a high-water mark that can be set back (/proc/self/status, clear_refs)",
            fix="run the measurement on Linux, for example in a container",
        )
