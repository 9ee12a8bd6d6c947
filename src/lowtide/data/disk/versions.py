"""The versions of a store: which is current, who reads which, and how a new one takes its place.

    store/manifest.json      the current version's manifest
    store/v0001/...          what a version added: shards, lengths, vocabularies, and its manifest once more
    store/.building-.../     a version that is being written
    store/.writer            locked by whoever writes

Files of a version never change. A reader holds a shared lock on the manifest of the version that it opened, so that
cleaning spares it and what it names. Where the file system has no locks, the version before the current one is spared
all the same. Locks end with the process, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lowtide.data.disk.files import disk_errors, plain_size, read_errors, read_whole, sync, write_beside
from lowtide.data.disk.manifest import MANIFEST, Manifest, damaged, folder_of, version_of
from lowtide.errors import LowtideError

WRITER = ".writer"
BUILDING = ".building-"
_TAKEN = {errno.EAGAIN, errno.EACCES}
_ATTEMPTS = 5


def read_current(store: Path) -> Manifest:
    """The manifest of a store's current version.

    Raises:
        LowtideError: There is no store, or its manifest is damaged, newer than this Lowtide, or not to be read.
    """
    path = store / MANIFEST
    if plain_size(path) is None:
        raise _no_store(store)
    return Manifest.from_bytes(read_whole(path), path)


def read_version(store: Path, version: int) -> Manifest | None:
    """The manifest of one version; None where it was removed."""
    path = store / folder_of(version) / MANIFEST
    if path.parent.is_symlink() or plain_size(path) is None:
        return None
    manifest = Manifest.from_bytes(read_whole(path), path)
    if manifest.version != version:
        raise damaged(path, f"it is the manifest of version {manifest.version}")
    return manifest


class Reading:
    """A version that cleaning spares as long as this object, or a fork of its process, lives."""

    def __init__(self, path: Path) -> None:
        """Lock the version's manifest among other readers.

        Raises:
            OSError: It cannot be opened; the version was removed meanwhile, for instance.
        """
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        _lock(self._descriptor, fcntl.LOCK_SH)
        if not path.exists():  # removed between opening and locking
            self.close()
            raise FileNotFoundError(path)

    def close(self) -> None:
        """Give it free."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Bound beforehand: at the end of a program `os` may be gone before this.
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            close(descriptor)


def open_current(store: Path) -> tuple[Manifest, Reading]:
    """The current version, and the hold on it; tried again where it is replaced and removed meanwhile."""
    for _ in range(_ATTEMPTS):
        manifest = read_current(store)
        reading = hold(store, manifest.version)
        if reading is not None:
            return manifest, reading
    raise damaged(store / folder_of(manifest.version) / MANIFEST, "it is not there")


def hold(store: Path, version: int) -> Reading | None:
    """The hold on a version; None where it was removed.

    Raises:
        LowtideError: Its manifest cannot be read.
    """
    path = store / folder_of(version) / MANIFEST
    with read_errors(path):
        try:
            return Reading(path)
        except FileNotFoundError:
            return None


@contextmanager
def writing(store: Path) -> Iterator[None]:
    """Be the only one who writes to a store; where nothing comes of it, no folder and no lock stay.

    Raises:
        LowtideError: Another process writes to it, the folder holds other things, or cannot be written.
    """
    with disk_errors(store):
        made = not store.exists()
        store.mkdir(parents=True, exist_ok=True)
        _refuse_other_folders(store)
    descriptor = _lock_writer(store / WRITER)
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may be gone; what is wrong with it was said before
            if {path.name for path in store.iterdir()} == {WRITER}:
                (store / WRITER).unlink()
                if made:
                    store.rmdir()
        os.close(descriptor)


def publish(store: Path, building: Path, manifest: Manifest) -> None:
    """Make a folder that was written whole the current version.

    Args:
        store: The store's folder, locked for writing.
        building: The folder with the version's files, each of them synced.
        manifest: What it is; written here.
    """
    data = manifest.to_bytes()
    write_beside(building / MANIFEST, data)
    with disk_errors(store):
        building.rename(store / folder_of(manifest.version))
    sync(store)
    try:
        write_beside(store / MANIFEST, data)
    except BaseException:
        if current_version(store) != manifest.version:
            _remove(store / folder_of(manifest.version))
        raise
    sync(store.parent)


def next_version(store: Path) -> int:
    """A number that no folder in the store has."""
    return 1 + max((version_of(path.name) or 0 for path in store.iterdir()), default=0)


def current_version(store: Path) -> int | None:
    """The number of the current version; None where there is no store yet."""
    return None if plain_size(store / MANIFEST) is None else read_current(store).version


def clean(store: Path, *, spare: Path | None = None) -> None:
    """Remove versions that are neither the current one, nor the one before, nor read by anybody; and what is half made.

    Args:
        store: The store's folder, locked for writing.
        spare: A half-made folder that will be gone on with.
    """
    for path in (*store.glob(f"{BUILDING}*"), *store.glob(f".{MANIFEST}.*")):
        if path != spare:
            _remove(path)
    kept: set[str] = set()
    if plain_size(store / MANIFEST) is not None:
        current = read_current(store)
        kept = current.folders
        if current.previous is not None:
            kept |= _folders(store, current.previous)
    versions = {path: version_of(path.name) for path in store.iterdir()}
    for path, version in versions.items():
        if version is not None and path.name not in kept and _is_read(path):
            kept |= _folders(store, version)
    for path, version in versions.items():
        if version is not None and path.name not in kept:
            _remove(path)


def _folders(store: Path, version: int) -> set[str]:
    """The folders that a version needs; its own alone where its manifest cannot be read."""
    try:
        manifest = read_version(store, version)
    except LowtideError:
        manifest = None
    return {folder_of(version)} if manifest is None else manifest.folders


def _remove(path: Path) -> None:
    """Remove a folder or file; what cannot be removed stays for the next writer."""
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST).unlink(missing_ok=True)  # first: a version without one is no version
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_read(folder: Path) -> bool:
    """Whether anybody holds this version, or may do so for all that can be told."""
    try:
        descriptor = os.open(folder / MANIFEST, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Lock without waiting; False where another holds it. A file system without locks counts as free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _TAKEN
    return True


def _lock_writer(path: Path) -> int:
    while True:
        with disk_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        if not _lock(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            raise LowtideError(
                what=f"another process writes to the store {path.parent}",
                why="two writers at once would each leave out what the other wrote",
                fix="wait for it to end, or stop it; readers need not stop",
            )
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)  # removed by its last holder between opening and locking


def _refuse_other_folders(store: Path) -> None:
    if (store / MANIFEST).exists():
        read_current(store)
        return
    others = [path.name for path in store.iterdir() if not _ours(path.name)]
    if others:
        raise LowtideError(
            what=f"{store} holds {min(others)!r}, and is not a store",
            why="a store has its folder to itself: it removes old versions of its files there",
            fix="name a folder that is empty or does not exist yet",
        )


def _ours(name: str) -> bool:
    return name == WRITER or name.startswith((BUILDING, f".{MANIFEST}.")) or version_of(name) is not None


def _no_store(store: Path) -> LowtideError:
    if not store.is_dir():
        return LowtideError(
            what=f"there is no folder {store}",
            why="a store is a folder with a manifest.json",
            fix="name the folder that `lowtide.ingest` wrote",
        )
    half = any(store.glob(f"{BUILDING}*"))
    return LowtideError(
        what=f"{store} is not a store: it has no {MANIFEST}" + (", only an ingest that did not end" if half else ""),
        why="the manifest is written last, and names everything else",
        fix="run the same ingest again" if half else "name the folder that `lowtide.ingest` wrote",
    )
