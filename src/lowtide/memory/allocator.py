"""Settles how malloc treats large blocks, so that peaks are repeatable and training stops paying for page faults.

glibc's malloc moves its mmap threshold with every large block that is freed. What stays in the heap afterwards depends
on the order of events: the peak of one and the same training step scatters by several per cent. A fixed threshold
sends every large block to the kernel and back, which makes peaks repeatable to about one per cent. The page faults
that costs are won back by transparent huge pages: one fault for 2 MiB instead of 512.

Nothing happens unless `settle_allocator` is called, and `LOWTIDE_ALLOCATOR=off` keeps it from doing anything.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lowtide.errors import LowtideError

SETTING = "LOWTIDE_ALLOCATOR"
TORCH_HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Read by torch at its first allocation and never again."""

MMAP_THRESHOLD = 64 * 1024

_M_MMAP_THRESHOLD = -3
"""From glibc's malloc.h."""
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""What glibc accepts on 64-bit machines: half of its largest heap."""
_HUGE_PAGES_STATE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class AllocatorReport:
    """What `settle_allocator` brought into effect."""

    mmap_threshold: int | None
    """Bytes from which on a block comes from the kernel and goes back to it; None: the system's own rule stands."""
    huge_pages: bool
    """Whether torch asks the kernel to back its blocks of 2 MiB and more with huge pages."""
    notes: tuple[str, ...] = ()
    """Why something did not take effect, in words."""


class _Malloc(Protocol):
    """The C library's malloc, as far as it can be settled."""

    def fix_mmap_threshold(self, size: int) -> str | None:
        """Fix the threshold; say why it could not be done, or None where it was."""


class _Glibc:
    """glibc: `mallopt` fixes the threshold and ends its moving."""

    def fix_mmap_threshold(self, size: int) -> str | None:
        accepted = ctypes.CDLL(None).mallopt(ctypes.c_int(_M_MMAP_THRESHOLD), ctypes.c_int(size))
        return None if accepted == 1 else f"mallopt refused an mmap threshold of {size} bytes"


@dataclass(frozen=True)
class _OtherMalloc:
    """A C library without such a setting: nothing is done, and the reason is kept."""

    reason: str

    def fix_mmap_threshold(self, size: int) -> str | None:  # noqa: ARG002 - the protocol's argument
        return self.reason


def settle_allocator(*, mmap_threshold: int = MMAP_THRESHOLD, huge_pages: bool = True) -> AllocatorReport:
    """Fix malloc's mmap threshold for this process, and have torch ask for huge pages.

    Call it before torch allocates its first tensor, best before torch is imported. Child processes inherit the huge
    pages through the environment, the threshold only by fork. A fixed threshold stays for the life of the process.

    Args:
        mmap_threshold: Blocks of this many bytes and more come from the kernel one by one, at most 32 MiB.
        huge_pages: Whether torch's large blocks ask for huge pages.

    Returns:
        What took effect, and why something did not. On macOS, musl and Windows nothing does.

    Raises:
        LowtideError: If `mmap_threshold` or the variable LOWTIDE_ALLOCATOR has a value that means nothing.
    """
    if not 1 <= mmap_threshold <= _LARGEST_MMAP_THRESHOLD:
        raise LowtideError(
            what=f"mmap_threshold={mmap_threshold} lies outside of 1 to {_LARGEST_MMAP_THRESHOLD} bytes",
            why="malloc refuses such a threshold and would go on with a moving one",
            fix=f"pass a size in that range, or leave it out for {MMAP_THRESHOLD}",
        )
    if not switched_on():
        return AllocatorReport(None, huge_pages=False, notes=(f"{SETTING}=off",))
    threshold_note = _malloc().fix_mmap_threshold(mmap_threshold)
    huge_note = _ask_for_huge_pages() if huge_pages else "huge pages were not asked for"
    return AllocatorReport(
        mmap_threshold if threshold_note is None else None,
        huge_pages=huge_note is None,
        notes=tuple(note for note in (threshold_note, huge_note) if note is not None),
    )


def switched_on() -> bool:
    """Whether the variable LOWTIDE_ALLOCATOR leaves allocators to Lowtide.

    Raises:
        LowtideError: It has a value that means nothing.
    """
    value = os.environ.get(SETTING, "on")
    if value not in {"on", "off"}:
        raise LowtideError(
            what=f"the environment variable {SETTING} is {value!r}",
            why="only 'on' and 'off' mean something, and a misspelt 'off' must not pass for 'on'",
            fix=f"set {SETTING}=off to leave the allocator alone, or unset it",
        )
    return value == "on"


def _malloc() -> _Malloc:
    if sys.platform != "linux":
        return _OtherMalloc(f"malloc on {sys.platform} has no mmap threshold")
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        version = ""  # musl does not know the name
    if not version.startswith("glibc"):
        return _OtherMalloc("the C library is not glibc, and its malloc has no mmap threshold")
    return _Glibc()


def _ask_for_huge_pages() -> str | None:
    """Have torch ask for huge pages; say why that will have no effect, or None where it will."""
    if sys.platform != "linux":
        return f"torch asks for huge pages on Linux only, this is {sys.platform}"
    state = _HUGE_PAGES_STATE.read_text(encoding="ascii") if _HUGE_PAGES_STATE.exists() else "[never]"
    if "[never]" in state:
        return "the kernel gives no transparent huge pages here"
    if os.environ.get(TORCH_HUGE_PAGES) == "1":
        return None
    if "torch" in sys.modules:
        return f"torch was loaded before: call settle_allocator() earlier, or start with {TORCH_HUGE_PAGES}=1"
    os.environ[TORCH_HUGE_PAGES] = "1"
    return None
