"""What belongs to a store besides its sequences: vocabularies, documents, splits and transforms, as files and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.files import read_errors, read_whole, write_new
from lowtide.data.disk.manifest import SPLITS, FileEntry, Manifest, damaged, folder_of
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.splitting.splits import Splits
    from lowtide.data.transforms import Transform


@dataclass(frozen=True)
class Supplements:
    """What a writer is given at the end; None keeps what the store had."""

    vocabularies: Mapping[str, Sequence[str]] | None = None
    documents: Mapping[str, str] | None = None
    splits: Splits | None = None
    transforms: Sequence[Transform] | None = None
    notes: Mapping[str, Any] | None = None

    def save(self, store: Path, building: Path, onto: Manifest) -> Manifest:
        """Write them into the folder of a new version.

        Args:
            store: The store's folder.
            building: The new version's folder, before it has its name.
            onto: What the version is without them, with the files that lie in `building`.

        Returns:
            What it is with them, with every file where it will lie.

        Raises:
            LowtideError: They do not belong to these data, are no plain values, or the disk is full.
        """
        made = replace(
            onto,
            notes=onto.notes if self.notes is None else _plain(self.notes),
            vocabularies={**onto.vocabularies, **self._vocabularies(store, building, onto)},
            documents={**onto.documents, **self._documents(building)},
        )
        if self.splits is not None:
            if len(self.splits.values) != onto.sequences:
                raise _other_sequences(len(self.splits.values), onto.sequences)
            values = _written(building, SPLITS, _npy(self.splits.values))
            made = replace(made, splits=self.splits.to_json(), arrays={**made.arrays, SPLITS: values})
        if self.transforms is not None:
            made = replace(made, transforms=tuple(transform.to_json() for transform in self.transforms))
        return made.with_folder(building.name, folder_of(made.version))

    def _vocabularies(self, store: Path, building: Path, onto: Manifest) -> dict[str, FileEntry]:
        given = self.vocabularies or {}
        for name in sorted(set(given) & set(onto.vocabularies)):
            check_vocabulary_grows(name, read_vocabulary(store / onto.vocabularies[name].path), given[name])
        needed = {field.vocabulary for field in onto.schema.fields if field.vocabulary is not None}
        missing = needed - set(given) - set(onto.vocabularies)
        if missing:
            raise LowtideError(
                what=f"the vocabulary {min(missing)!r} was not given",
                why="without it, the codes of the field that names it mean nothing",
                fix="commit(vocabularies={name: entries})",
            )
        return {
            name: _written(
                building, f"vocabulary-{number}.json", json.dumps(list(entries), ensure_ascii=False).encode()
            )
            for number, (name, entries) in enumerate(given.items())
        }

    def _documents(self, building: Path) -> dict[str, FileEntry]:
        given = enumerate((self.documents or {}).items())
        return {name: _written(building, f"document-{number}.txt", text.encode()) for number, (name, text) in given}


def read_vocabulary(path: Path) -> list[str]:
    """The entries of a stored vocabulary.

    Raises:
        LowtideError: The file holds something else.
    """
    try:
        entries = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise damaged(path, "it is not a list of texts")
    return entries


def read_splits(path: Path, described: Mapping[str, Any], sequences: int) -> Splits:
    """The stored splits, their numbers mapped.

    Raises:
        LowtideError: The file does not belong to this description, or not to this number of sequences.
    """
    from lowtide.data.splitting.splits import Splits  # noqa: PLC0415 - few stores' readers need them

    try:
        with read_errors(path):
            values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, SyntaxError, TokenError) as error:  # NumPy reads a file's head like a line of Python
        raise damaged(path, str(error)) from error
    if values.shape[:1] != (sequences,):
        raise damaged(path, f"it holds numbers of shape {values.shape}, and the store has {sequences} sequences")
    return Splits.from_json(described, values)


def check_vocabulary_grows(name: str, before: Sequence[str], after: Sequence[str]) -> None:
    """See that codes which are stored keep their meaning.

    Raises:
        LowtideError: An entry that was there has moved or gone.
    """
    if list(after[: len(before)]) != list(before):
        raise LowtideError(
            what=f"the vocabulary {name!r} does not begin with the {len(before)} entries that the store has",
            why="the codes of the sequences that are there would come to mean something else",
            fix="append new entries behind those of store.vocabulary(...)",
        )


def _written(building: Path, name: str, data: bytes) -> FileEntry:
    made = write_new(building / name, data)
    return FileEntry(building.name, name, made.bytes, made.sha256)


def _plain(notes: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise LowtideError(
            what=f"notes={str(notes)[:80]} cannot be written as JSON: {error}",
            why="they are kept in the store's manifest",
            fix="give text, finite numbers, and lists and dictionaries of them",
        ) from error
    return dict(notes)


def _npy(values: NDArray[Any]) -> bytes:
    memory = io.BytesIO()
    np.save(memory, values, allow_pickle=False)
    return memory.getvalue()


def _other_sequences(found: int, wanted: int) -> LowtideError:
    return LowtideError(
        what=f"the splits are of {found} sequences, and the store has {wanted}",
        why="every sequence belongs to one part",
        fix="split all of them; for appended ones, go on from the splits that are there",
    )
