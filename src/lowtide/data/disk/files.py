"""Files that are there whole or not at all: written beside their place, synced, renamed; and checksums of them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from lowtide.errors import LowtideError

_BLOCK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Bytes(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...


@dataclass(frozen=True)
class Digest:
    """How many bytes a file has, and the SHA-256 of them."""

    bytes: int
    sha256: str


class HashedFile:
    """A new file that is hashed while it is written, and synced when it is closed."""

    def __init__(self, path: Path) -> None:
        """Open it; one that was there is emptied."""
        self._path = path
        self._hash = hashlib.sha256()
        self.bytes = 0
        with disk_errors(path):
            self._file = path.open("wb", buffering=0)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._file.closed

    def write(self, data: _Bytes) -> int:
        """Write all of it."""
        block = memoryview(data).cast("B")
        with disk_errors(self._path):
            write_all(self._file, block)
        self._hash.update(block)
        self.bytes += len(block)
        return len(block)

    def tell(self) -> int:
        """Bytes written."""
        return self.bytes

    def flush(self) -> None:
        """Nothing waits in a buffer."""

    def finish(self) -> Digest:
        """Sync and close it."""
        with disk_errors(self._path):
            os.fsync(self._file.fileno())
            self._file.close()
        return Digest(self.bytes, self._hash.hexdigest())

    def close(self) -> None:
        """Close it as it is."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all of it to a file without a buffer, which may take it in parts."""
    written = 0
    while written < len(data):
        written += file.write(data[written:])


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Say of an error while writing what it means.

    Raises:
        LowtideError: The disk or a quota is full, or the system refused otherwise.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise LowtideError(
            what=f"writing {path} failed: {error.strerror or error}",
            why="what is not written whole is of no use: it is given up, and an earlier version stays as it was",
            fix="free some disk, or name a folder on a disk with more room"
            if full
            else "check the folder and the disk",
        ) from error


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Say of an error while reading that it is not the content's fault.

    Raises:
        LowtideError: The system refused.
    """
    try:
        yield
    except OSError as error:
        raise LowtideError(
            what=f"{path} cannot be read: {error.strerror or error}",
            why="the system refuses it; nothing is known of the content",
            fix="see that this user may read the store's folder and files, and that the disk is there",
        ) from error


def write_new(path: Path, data: bytes) -> Digest:
    """Write and sync a file that no one reads yet."""
    with HashedFile(path) as file:
        file.write(data)
        return file.finish()


def write_beside(path: Path, data: bytes) -> None:
    """Replace a file at once: readers find the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_new(beside, data)
        with disk_errors(path):
            beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Make the bytes of a file last, or the names in a folder."""
    with disk_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def digest(path: Path) -> Digest:
    """Read a file through, in blocks.

    Raises:
        LowtideError: It cannot be read.
    """
    hashed = hashlib.sha256()
    size = 0
    with read_errors(path), path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
            size += len(block)
    return Digest(size, hashed.hexdigest())


def read_whole(path: Path) -> bytes:
    """All bytes of a small file.

    Raises:
        LowtideError: It cannot be read.
    """
    with read_errors(path):
        return path.read_bytes()


def plain_size(path: Path) -> int | None:
    """The bytes of a plain file; None where there is none, or a link, a folder or a device in its place.

    Raises:
        LowtideError: The system does not say.
    """
    with read_errors(path):
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
