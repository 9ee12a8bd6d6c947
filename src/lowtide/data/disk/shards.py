"""Rows of memory-mapped Arrow files as NumPy arrays, without copies.

A shard is mapped when one of its rows is first wanted, a record batch taken apart when one of its rows is. Offsets
come from a file, so each pair is checked against the values it points into before it is used: a damaged store raises,
it does not read past the end. Mapped files are closed at once: the mapping stays, no descriptor does.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.arrow import numbers_of, present_in
from lowtide.data.disk.files import plain_size, read_errors
from lowtide.data.disk.manifest import FileEntry, ShardEntry, damaged
from lowtide.data.disk.step_tables import StepTables
from lowtide.data.fields import ID, Array, Field, Schema


@dataclass(frozen=True)
class StepColumn:
    """One field's steps in one record batch."""

    offsets: NDArray[np.int64]
    """(rows + 1,): where each row's steps begin."""
    values: Array
    """(steps,) or (steps, width)."""
    path: Path

    def span(self, row: int) -> tuple[int, int]:
        """Where a row's steps begin and end, checked."""
        first, end = self.offsets.item(row), self.offsets.item(row + 1)
        if not 0 <= first <= end <= len(self.values):
            raise damaged(self.path, f"row {row} of a batch claims steps {first} to {end} of {len(self.values)}")
        return first, end


class Shard:
    """One mapped Arrow file."""

    def __init__(self, path: Path, entry: ShardEntry, schema: Schema) -> None:
        """Nothing is opened yet."""
        self._path = path
        self._entry = entry
        self._schema = schema

    def batch(self, number: int) -> Columns:
        """One of its record batches."""
        try:
            batch = self._reader.get_batch(number)
            batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise damaged(self._path, str(error)) from error
        if batch.num_rows != self._entry.batches[number]:
            raise damaged(self._path, f"batch {number} has {batch.num_rows} rows, not {self._entry.batches[number]}")
        return Columns(batch, self._schema, self._path)

    @cached_property
    def _reader(self) -> pa.RecordBatchFileReader:
        size = plain_size(self._path)
        if size != self._entry.file.bytes:
            raise damaged(self._path, _size_fault(size, self._entry.file.bytes))
        with read_errors(self._path), pa.memory_map(str(self._path)) as mapped:
            content = mapped.read_buffer()
        try:
            reader = pa.ipc.open_file(pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            raise damaged(self._path, str(error)) from error
        if not reader.schema.equals(self._schema.arrow):
            raise damaged(self._path, "its columns are not those of the manifest")
        if reader.num_record_batches != len(self._entry.batches):
            raise damaged(self._path, f"it has {reader.num_record_batches} batches, not {len(self._entry.batches)}")
        return reader


class Columns:
    """One record batch, its columns as NumPy arrays."""

    def __init__(self, batch: pa.RecordBatch, schema: Schema, path: Path) -> None:
        """Keep the batch; columns are taken apart when they are wanted."""
        self._batch = batch
        self._schema = schema
        self._path = path
        self._steps: dict[str, StepColumn] = {}
        self._values: dict[str, Array] = {}

    def steps(self, name: str) -> StepColumn:
        """A field with values per step."""
        found = self._steps.get(name)
        if found is None:
            column = self._batch.column(name)
            if column.null_count:
                raise damaged(self._path, f"the field {name!r} has missing values")
            found = StepColumn(
                numbers_of(column.offsets), self._flat(self._schema.field(name), column.values), self._path
            )
            self._steps[name] = found
        return found

    def values(self, name: str) -> Array:
        """A field with one value a row: (rows,) or (rows, width)."""
        found = self._values.get(name)
        if found is None:
            found = self._flat(self._schema.field(name), self._batch.column(name), per_row=True)
            self._values[name] = found
        return found

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without their values per sequence: such as are continued in the next row."""
        found = np.zeros(self._batch.num_rows, dtype=np.bool_)
        for field in self._schema.per_sequence:
            column = self._batch.column(field.name)
            found |= ~present_in(column)
        return found

    def validate(self) -> None:
        """Look at every offset and every character.

        Raises:
            LowtideError: One is out of range.
        """
        try:
            self._batch.validate(full=True)
        except pa.ArrowException as error:
            raise damaged(self._path, str(error)) from error

    @cached_property
    def ids(self) -> pa.Array:
        """The names of the rows' sequences, all of them checked: Arrow trusts their offsets."""
        column = self._batch.column(ID)
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise damaged(self._path, str(error)) from error
        return column

    def _flat(self, field: Field, column: pa.Array, *, per_row: bool = False) -> Array:
        """The numbers of a column; what lies under nulls is left as it is, for rows that others continue."""
        scalars = column.values if field.width else column
        if (column.null_count and not per_row) or (field.width and scalars.null_count):
            raise damaged(self._path, f"the field {field.name!r} has missing values")
        flat = numbers_of(scalars)
        return flat.reshape(-1, field.width) if field.width else flat


class Rows:
    """All rows of a store, numbered over its shards."""

    def __init__(self, store: Path, shards: tuple[ShardEntry, ...], schema: Schema) -> None:
        """Nothing is opened yet but the numbers of rows."""
        self._shards = [Shard(store / entry.file.path, entry, schema) for entry in shards]
        self._places = [(shard, batch) for shard, entry in enumerate(shards) for batch in range(len(entry.batches))]
        sizes = [rows for entry in shards for rows in entry.batches]
        self._starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._starts_list: list[int] = self._starts.tolist()
        self._columns: dict[int, Columns] = {}
        self._tables: dict[str, StepTables] = {}

    def __len__(self) -> int:
        return self._starts_list[-1]

    @property
    def batches(self) -> int:
        """Record batches over all shards."""
        return len(self._places)

    def batch(self, number: int) -> Columns:
        """One record batch, counted over all shards."""
        found = self._columns.get(number)
        if found is None:
            shard, batch = self._places[number]
            found = self._columns[number] = self._shards[shard].batch(batch)
        return found

    def tables(self, field: Field, batches: NDArray[np.int64]) -> StepTables:
        """Where the steps of one field lie in all record batches; these of them are set, others may be."""
        tables = self._tables.get(field.name)
        if tables is None:
            tables = self._tables[field.name] = StepTables(self.batches, field.storage, field.step_shape)
        for number in tables.missing(batches):
            column = self.batch(number).steps(field.name)
            tables.set(number, column.offsets, column.values)
        return tables

    def locate(self, row: int) -> tuple[Columns, int]:
        """The record batch that holds a row, and the row's number in it."""
        number = bisect_right(self._starts_list, row) - 1
        return self.batch(number), row - self._starts_list[number]

    def locate_all(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same for many rows: numbers of record batches, and of rows in them."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        return batches, rows - self._starts[batches]

    def piece(self, name: str, row: int) -> Array:
        """The steps of one field in one row, without a copy."""
        columns, local = self.locate(row)
        column = columns.steps(name)
        first, end = column.span(local)
        return column.values[first:end]


def check_files(store: Path, files: tuple[FileEntry, ...]) -> None:
    """See that every file is there, is a plain file in a plain folder, and has its size.

    Raises:
        LowtideError: One is not.
    """
    for folder in sorted({entry.folder for entry in files}):
        if (store / folder).is_symlink():
            raise damaged(store / folder, "it is a link, and a store's files lie in its own folder")
    for entry in files:
        size = plain_size(store / entry.path)
        if size != entry.bytes:
            raise damaged(store / entry.path, _size_fault(size, entry.bytes))


def _size_fault(size: int | None, expected: int) -> str:
    if size is None:
        return "there is no such plain file"
    return f"it has {size} bytes, and the manifest says {expected}"
