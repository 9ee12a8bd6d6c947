"""Every byte of a store compared with what was written, and every row with the lengths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lowtide.data.disk import versions
from lowtide.data.disk.files import digest, plain_size
from lowtide.data.disk.manifest import MANIFEST, FileEntry, Manifest, version_of
from lowtide.data.disk.verify_rows import faults_of_rows
from lowtide.errors import LowtideError

_NAMED = 20
"""Damaged files that a message names."""


@dataclass(frozen=True)
class Verified:
    """What was found to be as it was written: data, and what belongs to them."""

    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.files} files, {self.bytes} bytes: every one as it was written"


def verify(path: str | Path) -> Verified:
    """Read every byte of a store's current version, also of one that is too damaged to be opened.

    Raises:
        LowtideError: There is no store, or a file of it is damaged; all that are have their names in it.
    """
    return verify_version(Path(path), versions.read_current(Path(path)))


def verify_version(store: Path, manifest: Manifest) -> Verified:
    """Read every byte of one version.

    Raises:
        LowtideError: A file is damaged; all that are have their names in it.
    """
    earlier, faults = _manifests(store, manifest)
    entries = {entry.path: entry for version in (*earlier, manifest) for entry in version.files}
    there = {path: entry for path, entry in entries.items() if entry.folder in manifest.folders}
    faults |= {path: fault for path, entry in there.items() if (fault := _fault(store, entry)) is not None}
    if not faults:
        faults = faults_of_rows(store, manifest)
    if faults:
        named = "; ".join(f"{name} ({fault})" for name, fault in list(faults.items())[:_NAMED])
        more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        raise LowtideError(
            what=f"{len(faults)} of the files of {store} are damaged: {named}{more}",
            why="batches made from damaged data would train a wrong model without a word",
            fix="restore these files from a copy, or ingest the sources again",
        )
    return Verified(len(there), sum(entry.bytes for entry in there.values()))


def _fault(store: Path, entry: FileEntry) -> str | None:
    path = store / entry.path
    try:
        size = plain_size(path)
        if size is None:
            return "it is not there"
        if size != entry.bytes:
            return f"it has {size} bytes of {entry.bytes}"
        found = digest(path)
    except LowtideError as error:
        return error.what
    return None if found.sha256 == entry.sha256 else "its bytes are not those that were written"


def _manifests(store: Path, manifest: Manifest) -> tuple[list[Manifest], dict[str, str]]:
    """The manifests of the versions that this one goes on from; and what is wrong with these and its own."""
    earlier, faults = [], {}
    try:
        versions.read_current(store)
    except LowtideError as error:
        faults[MANIFEST] = error.what
    for folder in sorted(manifest.folders):
        name = f"{folder}/{MANIFEST}"
        try:
            found = versions.read_version(store, version_of(folder) or 0)
        except LowtideError as error:
            faults[name] = error.what
            continue
        if found is None:
            faults[name] = "it is not there"
        elif found.version != manifest.version:
            earlier.append(found)
        elif found.to_bytes() != manifest.to_bytes():
            faults[name] = f"it says something else than {MANIFEST}"
    return earlier, faults
