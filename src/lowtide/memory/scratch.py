"""Memory-mapped scratch space on disk: for what is written once, read once, and need not stay in memory meanwhile.

Mapped pages of a file are not charged against a memory limit for good: the kernel can write them back and take them.
That holds for real disks alone, so folders that lie in RAM are refused. The space is claimed before it is used, since a
disk that fills up under a mapping kills the process. The file has no name: nothing is left behind, however a run ends.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.memory.mounts import read_mounts

_IN_RAM = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_SPARE = 64 << 20
"""Bytes of free disk that scratch files leave to others."""


def map_scratch(size: int, folder: Path | None = None) -> mmap.mmap:
    """Map `size` bytes of a nameless file, zeros at first.

    Args:
        size: Bytes, at least one.
        folder: Where the file lies; None for the system's folder for temporary files.

    Raises:
        LowtideError: The folder is not there or not writable, lies in RAM, or has too little free disk.
    """
    assert size > 0
    place = Path(tempfile.gettempdir()) if folder is None else folder
    reason = why_no_scratch(size, place)
    if reason is not None:
        raise LowtideError(
            what=f"no scratch file of {size} bytes can be had in {place}: {reason}",
            why="scratch space is to take load off the memory, and a disk that fills up would end the run",
            fix="name a folder on a disk with more room, or set TMPDIR to one",
        )
    with tempfile.TemporaryFile(dir=place) as file:
        try:
            _claim(file.fileno(), size)
        except OSError as error:
            raise LowtideError(
                what=f"claiming {size} bytes for a scratch file in {place} failed: {error}",
                why="a disk that fills up under a mapped file ends the process without a word",
                fix="free some disk, or name a folder on a disk with more room",
            ) from error
        return mmap.mmap(file.fileno(), size)


def why_no_scratch(size: int, folder: Path) -> str | None:
    """Say why a scratch file of this size does not fit a folder; None where it does."""
    if not folder.is_dir():
        return "there is no such folder"
    if not os.access(folder, os.W_OK):
        return "the folder is not writable"
    kind = file_system(folder)
    if kind in _IN_RAM:
        return f"the folder lies in RAM ({kind})"
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < size + _SPARE:
        return f"{free} bytes are free there, and {_SPARE} of them are left to others"
    return None


def file_system(folder: Path) -> str:
    """The kind of file system that a folder lies on; empty where the system does not tell."""
    if sys.platform != "linux":
        return ""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    return next((mount.kind for mount in read_mounts() if mount.device == wanted), "")


def _claim(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)  # macOS: written out
    for start in range(0, size, len(block)):
        os.pwrite(descriptor, block[: size - start], start)
