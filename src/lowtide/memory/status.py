"""One reading of a process's memory, from Linux's /proc/<process>/status. Every figure of this part starts here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import UnsupportedError

PROC = Path("/proc")
KERNEL_STACK = 16 * 1024
"""What the kernel keeps for each thread, on 64-bit machines."""

_NEEDED = {"VmHWM", "RssAnon", "RssFile", "RssShmem", "VmData", "VmSize"}


@dataclass(frozen=True)
class MemoryStatus:
    """One reading of a process's memory, in bytes."""

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
    address_space: int
    """VmSize: all address space, touched or not; what RLIMIT_AS counts."""
    swapped: int
    """VmSwap: anonymous pages that were moved to swap. They would be resident if there were none."""
    kernel: int
    """VmPTE and a stack for each thread: what the kernel itself keeps for the process."""

    @property
    def unreclaimable(self) -> int:
        """What the process holds now and the kernel cannot take back, its own pages for it not counted."""
        return self.anonymous + self.shared + self.swapped


def read_status(*, proc: Path = PROC) -> MemoryStatus:
    """Read this process's memory figures.

    Args:
        proc: Where the proc file system is.

    Raises:
        UnsupportedError: The operating system is not Linux, or its kernel does not keep these figures.
    """
    if sys.platform != "linux":
        raise UnsupportedError(
            what=f"memory figures of the kernel were asked for on {sys.platform}",
            why="only Linux has them, and a high-water mark that can be set back (/proc/self/status, clear_refs)",
            fix="use lowtide.memory.watch(), which samples elsewhere, or run on Linux, for example in a container",
        )
    status = read_status_of("self", proc=proc)
    if status is None:
        raise UnsupportedError(
            what=f"{proc}/self/status lacks one of {', '.join(sorted(_NEEDED))}",
            why="this kernel, or a sandbox in its place, does not tell anonymous pages from those of files",
            fix="use lowtide.memory.watch(), which samples then, or run outside of the sandbox",
        )
    return status


def read_status_of(process: int | str, *, proc: Path = PROC) -> MemoryStatus | None:
    """Read the memory figures of some process; None where it has none, since it ended or belongs to the kernel."""
    try:
        text = (proc / str(process) / "status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if not fields.keys() >= _NEEDED:
        return None
    return MemoryStatus(
        high_water=_bytes(fields, "VmHWM"),
        anonymous=_bytes(fields, "RssAnon"),
        file=_bytes(fields, "RssFile"),
        shared=_bytes(fields, "RssShmem"),
        data=_bytes(fields, "VmData"),
        address_space=_bytes(fields, "VmSize"),
        swapped=_bytes(fields, "VmSwap"),
        kernel=_bytes(fields, "VmPTE") + KERNEL_STACK * int(fields.get("Threads", "1")),
    )


def _bytes(fields: dict[str, str], name: str) -> int:
    """A field in bytes; zero where the kernel was built without it."""
    return int(fields.get(name, "0 kB").split()[0]) * 1024
