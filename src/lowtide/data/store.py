"""A store of sequences on disk, opened in milliseconds at any size.

Opening reads the manifest and looks at the sizes of the files; data are mapped when they are wanted. A store that is
open keeps the version that it found, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lowtide.data.disk import versions
from lowtide.data.disk.files import read_whole
from lowtide.data.disk.gather import Gather
from lowtide.data.disk.ids import Ids
from lowtide.data.disk.lengths import LENGTHS, map_lengths
from lowtide.data.disk.manifest import SPLITS, FileEntry, Manifest, damaged
from lowtide.data.disk.pieces import Pieces
from lowtide.data.disk.shards import Rows, check_files
from lowtide.data.disk.supplements import read_splits, read_vocabulary
from lowtide.data.fields import Array, Field, Per, Schema
from lowtide.data.sequence import Piecewise, Sequence, SequenceArray
from lowtide.data.view import Counts, View, by_role
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.disk.verify import Verified
    from lowtide.data.splitting.splits import Splits
    from lowtide.data.text.tokenizing import Tokenizer
    from lowtide.data.transforms import Numbers, Transform

TOKENIZER = "tokenizer"
"""The document that a tokenizer is stored as."""


class Store(View):
    """Sequences on disk: `store[i]`, `store.lengths`, `store.loader(...)`."""

    def __init__(self, path: str | Path) -> None:
        """Open the current version of a store.

        Raises:
            LowtideError: There is none, it is damaged, or was written by a newer Lowtide.
        """
        manifest, reading = versions.open_current(Path(path))
        self._open(Path(path), manifest, reading)

    @classmethod
    def of_manifest(cls, path: Path, manifest: Manifest, reading: versions.Reading | None = None) -> Self:
        """The version that a manifest describes, which has been checked."""
        store = cls.__new__(cls)
        store._open(path, manifest, reading)  # noqa: SLF001 - its own
        return store

    def _open(self, path: Path, manifest: Manifest, reading: versions.Reading | None) -> None:
        check_files(path, manifest.files)
        self.path = path
        self.manifest = manifest
        self._reading = reading
        self.index = self.start = self.stop = None
        self._lengths = map_lengths(path / manifest.lengths.path, manifest.sequences)
        self._rows = Rows(path, manifest.shards, manifest.schema)
        self._pieces = Pieces(manifest.continued_rows)
        self._gather = Gather(self._rows, self._pieces)

    @property
    def store(self) -> Store:
        """The store itself."""
        return self

    @property
    def schema(self) -> Schema:
        """The fields of every sequence."""
        return self.manifest.schema

    @property
    def lengths(self) -> Counts:
        """The steps of every sequence, mapped."""
        assert self._lengths is not None
        return self._lengths

    @cached_property
    def fingerprint(self) -> str:
        """A name for the content: the same for the same sequences, splits and transforms."""
        return self.manifest.fingerprint

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the parts that the store is split into."""
        return () if self._splits is None else self._splits.names

    def split(self, name: str) -> View:
        """The part of this name.

        Raises:
            LowtideError: There is none.
        """
        if self._splits is None:
            raise LowtideError(
                what=f"the part {name!r} was asked for of a store that is not split",
                why="parts are made once, and stored, so that they stay what they are",
                fix="ingest with split={'train': 0.8, 'valid': 0.2}",
            )
        part = self._splits.part(name)
        return View(self, part.index, part.start, part.stop)

    def view(self) -> View:
        """All of it."""
        return View(self)

    def vocabulary(self, name: str) -> list[str]:
        """The entries of a vocabulary, in the order of their codes.

        Raises:
            LowtideError: There is none of this name.
        """
        return read_vocabulary(self.path / self._named(self.manifest.vocabularies, name, "vocabulary").path)

    def document(self, name: str) -> str:
        """A text that belongs to the data.

        Raises:
            LowtideError: There is none of this name.
        """
        path = self.path / self._named(self.manifest.documents, name, "document").path
        try:
            return read_whole(path).decode()
        except UnicodeDecodeError as error:
            raise damaged(path, str(error)) from error

    @cached_property
    def transforms(self) -> tuple[Transform, ...]:
        """What batches go through, in order; fitted before, stored as numbers."""
        if not self.manifest.transforms:
            return ()
        from lowtide.data.transforms import read_transforms  # noqa: PLC0415 - few stores' readers need them

        return read_transforms(self.manifest.transforms, self.schema)

    def transforms_of(self, field: str) -> tuple[Transform, ...]:
        """Those that the values of one field go through."""
        return tuple(transform for transform in self.transforms if transform.field == field)

    def invert(
        self, field: str, values: Array, *, columns: Iterable[str] | None = None, numbers: Numbers | None = None
    ) -> Array:
        """Take predictions of a field back to the units of the source.

        Args:
            field: The field whose transforms they are to go back through.
            values: Any array whose last axis are the columns; none for a field of width 0.
            columns: The columns that `values` has, where it has only some.
            numbers: What `sequence_numbers` found in the sequences, where they are scaled one by one.

        Raises:
            LowtideError: A column is not there, the array has another number of columns, or numbers are missing.
        """
        from lowtide.data.transforms import invert_all  # noqa: PLC0415 - few stores' readers need them

        chain = self.transforms_of(self.schema.field(field).name)
        return invert_all(chain, values, columns=None if columns is None else tuple(columns), numbers=numbers)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the text went through.

        Raises:
            LowtideError: The store holds no text.
        """
        from lowtide.data.text.tokenizing import read_tokenizer  # noqa: PLC0415 - few stores hold text

        return read_tokenizer(self.document(TOKENIZER))

    def decode(self, codes: Array) -> str:
        """The text of some codes."""
        return self.tokenizer().decode(codes)

    def verify(self) -> Verified:
        """Read every byte, and compare it with what was written.

        Raises:
            LowtideError: A file is damaged; all that are have their names in it.
        """
        from lowtide.data.disk.verify import verify_version  # noqa: PLC0415 - rarely asked for

        return verify_version(self.path, self.manifest)

    def revise(
        self,
        *,
        splits: Splits | None = None,
        transforms: Iterable[Transform] | None = None,
        documents: Mapping[str, str] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> Store:
        """Write a version with the same sequences, and open it; what is None stays as it is.

        Args:
            splits: Which sequences belong to which part.
            transforms: Fitted, in the order in which they are applied.
            documents: Texts that belong to the data, by name; those of other names stay.
            notes: How the data came in.

        Raises:
            LowtideError: The store has a newer version, another process writes to it, or the disk is full.
        """
        from lowtide.data.disk.revise import revise  # noqa: PLC0415 - it opens stores, and imports them

        fitted = None if transforms is None else tuple(transforms)
        return revise(self, splits=splits, transforms=fitted, documents=documents, notes=notes)

    def sequence(self, number: int, start: int, stop: int) -> Sequence:
        """Steps [start, stop) of one sequence."""
        rows = self._pieces.rows(number)
        schema = self.schema

        def read(field: Field) -> Piecewise:
            return self._steps(field, rows, start, stop) if field.per == "step" else self._value(field, rows[-1])

        columns, row = self._rows.locate(rows[0])
        return Sequence(
            id=columns.ids[row].as_py(),
            inputs=by_role(schema.inputs, read),
            targets=by_role(schema.targets, read),
            static=by_role(schema.static, read),
            length=stop - start,
        )

    def ids_of(self, index: Counts | None) -> Ids:
        """The names of some sequences; None: of all."""
        return Ids(self._rows, self._pieces, index, len(self) if index is None else len(index))

    def read_steps(self, field: str, sequences: Counts, starts: Counts, stops: Counts) -> tuple[Array, Counts]:
        """As `read`, for numbers that are known to be in range."""
        return self._gather.steps(self._of(field, "step"), sequences, starts, stops)

    def fill_steps(
        self, field: str, sequences: Counts, starts: Counts, stops: Counts, out: Array, *, batch_first: bool
    ) -> None:
        """As `fill`, for numbers that are known to be in range."""
        self._gather.fill(self._of(field, "step"), sequences, starts, stops, out, batch_first=batch_first)

    def read_values(self, field: str, sequences: Counts) -> Array:
        """As `read_static`, for numbers that are known to be in range."""
        return self._gather.values(self._of(field, "sequence"), sequences)

    def _steps(self, field: Field, rows: range, start: int, stop: int) -> Piecewise:
        pieces = [self._rows.piece(field.name, row) for row in rows]
        if sum(map(len, pieces)) < stop:
            raise damaged(self.path, f"a sequence has fewer than the {stop} steps that {LENGTHS} says")
        if len(pieces) > 1:
            array: SequenceArray = SequenceArray(pieces, field)[start:stop]
            return array
        return field.values(pieces[0][start:stop])

    def _value(self, field: Field, row: int) -> Array:
        columns, local = self._rows.locate(row)
        value: Array = field.values(np.asarray(columns.values(field.name)[local]))
        return value

    def _of(self, name: str, per: Per) -> Field:
        field = self.schema.field(name)
        if field.per != per:
            raise LowtideError(
                what=f"the field {name!r} has one value a {field.per}",
                why=f"values per {per} were asked for",
                fix="read fields per step with read(...), those per sequence with read_static(...)",
            )
        return field

    @cached_property
    def _splits(self) -> Splits | None:
        described = self.manifest.splits
        if described is None:
            return None
        path = self.path / self.manifest.arrays[SPLITS].path
        return read_splits(path, described, self.manifest.sequences)

    @staticmethod
    def _named(files: Mapping[str, FileEntry], name: str, kind: str) -> FileEntry:
        if name not in files:
            raise LowtideError(
                what=f"the store has no {kind} {name!r}",
                why=f"it has {sorted(files)}",
                fix="use one of these names",
            )
        return files[name]

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Store({str(self.path)!r}: {manifest.sequences} sequences, {manifest.steps} steps)"

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Any, ...]]:
        return open_version, (type(self), self.path.absolute(), self.manifest.version, self.fingerprint)


def open_version(kind: type[Store], path: Path, version: int, fingerprint: str) -> Store:
    """Open the very version that was pickled.

    Raises:
        LowtideError: It was removed, or the store was made anew.
    """
    reading = versions.hold(path, version)
    manifest = versions.read_version(path, version)
    if reading is None or manifest is None or manifest.fingerprint != fingerprint:
        raise LowtideError(
            what=f"version {version} of {path}, which was pickled, is not there any more",
            why="another version holds other sequences, under the same numbers",
            fix="open the store anew, and pickle what comes of it",
        )
    return kind.of_manifest(path, manifest, reading)
