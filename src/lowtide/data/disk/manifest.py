"""What a store is made of: the one file that names, counts and checksums all others.

It is written last, so a store is there whole or not at all. Whatever it says is checked before it is used: names that
lead out of the store, counts that contradict each other and types of another kind are refused, whether a disk or a
person wrote them. Its last line is the SHA-256 of the file itself with zeros in that place, so that damage shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Schema
from lowtide.errors import LowtideError

FORMAT = 1
"""The layout that this version writes, and the newest that it reads."""
MANIFEST = "manifest.json"
SPLITS = "splits.npy"
"""The array that says which sequences belong to which part."""
_KIND = "lowtide_store"
_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{64})"\n}\n\Z')
_FOLDER = re.compile(r"v[0-9]{4,12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileEntry:
    """One file of a store."""

    folder: str
    name: str
    bytes: int
    sha256: str

    @property
    def path(self) -> str:
        """Where it lies inside the store."""
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True)
class ShardEntry:
    """One Arrow file, and how many rows each of its record batches has."""

    file: FileEntry
    batches: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of the whole shard."""
        return sum(self.batches)


@dataclass(frozen=True)
class Manifest:
    """Everything there is to know about one version of a store without reading its data."""

    version: int
    previous: int | None
    """The version that was the current one when this was written."""
    schema: Schema
    sequences: int
    steps: int
    continued_rows: NDArray[np.int64]
    """Rows that continue the sequence of the row before, ascending."""
    shards: tuple[ShardEntry, ...]
    lengths: FileEntry
    vocabularies: Mapping[str, FileEntry] = field(default_factory=dict)
    documents: Mapping[str, FileEntry] = field(default_factory=dict)
    """Other texts that belong to the data, by name: a tokenizer, for instance."""
    arrays: Mapping[str, FileEntry] = field(default_factory=dict)
    """Files that `splits` and `transforms` name."""
    splits: Mapping[str, Any] | None = None
    transforms: tuple[Mapping[str, Any], ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    """How the data came in; not part of what they are."""

    @property
    def rows(self) -> int:
        """Rows of all shards: sequences, and what continues them."""
        return sum(shard.rows for shard in self.shards)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file but the manifest itself."""
        named = [*self.vocabularies.values(), *self.documents.values(), *self.arrays.values()]
        return (*(shard.file for shard in self.shards), self.lengths, *named)

    @property
    def folders(self) -> set[str]:
        """Every version folder that holds some of it."""
        return {folder_of(self.version), *(entry.folder for entry in self.files)}

    @property
    def fingerprint(self) -> str:
        """A name for the content: the same for the same data, splits and transforms, wherever they lie."""
        text = json.dumps(self._content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _content(self) -> dict[str, object]:
        named = {"vocabularies": self.vocabularies, "documents": self.documents, "arrays": self.arrays}
        return {
            **{kind: {name: entry.sha256 for name, entry in files.items()} for kind, files in named.items()},
            "schema": self.schema.to_json(),
            "shards": [shard.file.sha256 for shard in self.shards],
            "lengths": self.lengths.sha256,
            "continued_rows": self.continued_rows.tolist(),
            "splits": self.splits,
            "transforms": self.transforms,
        }

    def after(self, before: Manifest) -> Manifest:
        """The store that has the sequences of `before`, and then these.

        The lengths and splits are those of all sequences already, or not there.
        """
        return replace(
            self,
            sequences=before.sequences + self.sequences,
            steps=before.steps + self.steps,
            continued_rows=np.concatenate([before.continued_rows, before.rows + self.continued_rows]),
            shards=before.shards + self.shards,
            vocabularies={**before.vocabularies, **self.vocabularies},
            documents={**before.documents, **self.documents},
            arrays={**before.arrays, **self.arrays},
            splits=before.splits if self.splits is None else self.splits,
            transforms=self.transforms or before.transforms,
        )

    def with_folder(self, old: str, new: str) -> Manifest:
        """The same where the files of one folder lie in another."""

        def moved(entry: FileEntry) -> FileEntry:
            return replace(entry, folder=new) if entry.folder == old else entry

        def all_moved(files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
            return {name: moved(entry) for name, entry in files.items()}

        return replace(
            self,
            shards=tuple(replace(shard, file=moved(shard.file)) for shard in self.shards),
            lengths=moved(self.lengths),
            vocabularies=all_moved(self.vocabularies),
            documents=all_moved(self.documents),
            arrays=all_moved(self.arrays),
        )

    def to_bytes(self) -> bytes:
        """The file's content."""

        def written(entry: FileEntry) -> dict[str, object]:
            return {"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256}

        def all_written(files: Mapping[str, FileEntry]) -> dict[str, object]:
            return {name: written(entry) for name, entry in files.items()}

        described = {
            _KIND: FORMAT,
            "version": self.version,
            "previous": self.previous,
            "sequences": self.sequences,
            "steps": self.steps,
            "schema": self.schema.to_json(),
            "continued_rows": self.continued_rows.tolist(),
            "shards": [{**written(shard.file), "batches": list(shard.batches)} for shard in self.shards],
            "lengths": written(self.lengths),
            "vocabularies": all_written(self.vocabularies),
            "documents": all_written(self.documents),
            "arrays": all_written(self.arrays),
            "splits": self.splits,
            "transforms": self.transforms,
            "notes": self.notes,
            "checksum": "0" * 64,
        }
        return _sealed(json.dumps(described, indent=1, allow_nan=False).encode() + b"\n")

    @staticmethod
    def from_bytes(data: bytes, path: Path) -> Manifest:
        """What a manifest file says, checked.

        Args:
            data: The file's content.
            path: Where it was read, for messages.

        Raises:
            LowtideError: It is no manifest, is damaged, was written by a newer Lowtide, or contradicts itself.
        """
        described = _parsed(data, path)
        sealed = _CHECKSUM.search(data)
        if sealed is None or _sealed(data) != data:
            raise damaged(path, "its checksum is not that of its content")
        try:
            manifest = _Reader(described).manifest()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, LowtideError) as error:
            said = error.what if isinstance(error, LowtideError) else f"{type(error).__name__}: {error}"
            raise damaged(path, said) from error
        return manifest


def folder_of(version: int) -> str:
    """The folder that a version is written to."""
    return f"v{version:04d}"


def version_of(folder: str) -> int | None:
    """The version that a folder holds; None for any other name."""
    return int(folder[1:]) if _FOLDER.fullmatch(folder) and folder == folder_of(int(folder[1:])) else None


def damaged(path: Path, what: str) -> LowtideError:
    """The error for a file that does not hold what it should."""
    return LowtideError(
        what=f"{path} is damaged: {what}",
        why="batches made from damaged data would train a wrong model without a word",
        fix="restore the store from a copy, or remove its folder and ingest its sources again",
    )


def _sealed(data: bytes) -> bytes:
    """The same file with the checksum of what it says."""
    blank = _CHECKSUM.sub(b'"checksum": "' + b"0" * 64 + b'"\n}\n', data)
    checksum = hashlib.sha256(blank).hexdigest().encode()
    return _CHECKSUM.sub(b'"checksum": "' + checksum + b'"\n}\n', blank)


def _parsed(data: bytes, path: Path) -> dict[str, Any]:
    try:
        described = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON ({error})") from error
    made = described.get(_KIND) if isinstance(described, dict) else None
    if made is None:
        raise LowtideError(
            what=f"{path} is not the manifest of a Lowtide store",
            why=f"a store's manifest says {_KIND!r} and the number of its layout",
            fix="name the folder that `lowtide.ingest` wrote",
        )
    if isinstance(made, int) and made > FORMAT:
        raise LowtideError(
            what=f"{path} was written in layout {made}, by a newer Lowtide",
            why=f"this one reads layouts up to {FORMAT}, and would misread what it does not know",
            fix="pip install --upgrade lowtide",
        )
    return dict(described)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


@dataclass(frozen=True)
class _Reader:
    """Takes a manifest apart; anything unexpected is a ValueError, TypeError or KeyError."""

    described: dict[str, Any]

    def manifest(self) -> Manifest:
        told = self.described
        if told[_KIND] != FORMAT:
            raise ValueError(f"there is no layout {told[_KIND]!r}")
        made = Manifest(
            version=_count(told["version"], "version"),
            previous=None if told["previous"] is None else _count(told["previous"], "previous version"),
            schema=Schema.from_json(told["schema"]),
            sequences=_count(told["sequences"], "sequences"),
            steps=_count(told["steps"], "steps"),
            continued_rows=np.array([_count(row, "row") for row in _list(told["continued_rows"])], dtype=np.int64),
            shards=tuple(_shard(shard) for shard in _list(told["shards"])),
            lengths=_entry(told["lengths"]),
            vocabularies=_entries(told["vocabularies"]),
            documents=_entries(told["documents"]),
            arrays=_entries(told["arrays"]),
            splits=None if told["splits"] is None else _dict(told["splits"]),
            transforms=tuple(_dict(transform) for transform in _list(told["transforms"])),
            notes=_dict(told["notes"]),
        )
        _agree(made)
        return made


def _agree(made: Manifest) -> None:
    """Counts and names fit each other."""
    continued = made.continued_rows
    if made.rows != made.sequences + len(continued):
        raise ValueError(f"{made.rows} rows in the shards are not {made.sequences} sequences + {len(continued)} pieces")
    if len(continued) and (continued[0] < 1 or continued[-1] >= made.rows or (np.diff(continued) < 1).any()):
        raise ValueError("the rows that continue others are not ascending rows of the shards")
    paths = [entry.path for entry in made.files]
    if len(set(paths)) != len(paths):
        raise ValueError("one file is named twice")
    newest = max(version_of(entry.folder) or 0 for entry in made.files)
    if newest > made.version:
        raise ValueError(f"version {made.version} names files of version {newest}")
    if made.splits is not None and SPLITS not in made.arrays:
        raise ValueError("the file of the splits is not named")
    missing = {f.vocabulary for f in made.schema.fields if f.vocabulary is not None} - set(made.vocabularies)
    if missing:
        raise ValueError(f"there is no vocabulary {min(missing)!r}")


def _count(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no number of {what}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{str(value)[:40]!r} is not a list")
    return value


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:40]!r} is not an object")
    return value


def _text(value: object, accept: Callable[[str], object], what: str) -> str:
    if not isinstance(value, str) or not accept(value):
        raise ValueError(f"{str(value)[:80]!r} is not {what}")
    return value


def _entry(value: object) -> FileEntry:
    told = _dict(value)
    path = _text(told["path"], lambda text: text.count("/") == 1, "a file in a version's folder")
    folder, _, name = path.partition("/")
    return FileEntry(
        folder=_text(folder, version_of, "a version's folder"),
        name=_text(name, _NAME.fullmatch, "a plain file name"),
        bytes=_count(told["bytes"], "bytes"),
        sha256=_text(told["sha256"], _SHA256.fullmatch, "a checksum"),
    )


def _entries(value: object) -> dict[str, FileEntry]:
    return {name: _entry(entry) for name, entry in _dict(value).items()}


def _shard(value: object) -> ShardEntry:
    return ShardEntry(_entry(value), tuple(_count(rows, "rows") for rows in _list(_dict(value)["batches"])))
