"""Rows that wait to be written together: steps copied into one run of memory a field, until a record batch is full.

A row is a sequence or a piece of one. The last row may be open: more steps of it are still to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.arrow import arrow_numbers, arrow_texts, bits_of
from lowtide.data.fields import Array, Field, Schema

Name: TypeAlias = str | int
"""What a sequence is called."""

_MOST_ROWS = 1 << 16
_ROW_BYTES = 16
"""What a row takes besides its values: an offset, and its name."""


class RowBuffer:
    """Up to a number of bytes of rows."""

    def __init__(self, schema: Schema, most_bytes: int) -> None:
        """Set memory aside; it is not touched before it is used."""
        self._schema = schema
        self._step_bytes = sum(field.step_bytes for field in schema.per_step)
        self.most_steps = max(1, most_bytes // self._step_bytes)
        row_bytes = _ROW_BYTES + sum(field.step_bytes for field in schema.per_sequence)
        self._most_rows = max(1, min(_MOST_ROWS, most_bytes // row_bytes))
        self._steps = {field.name: _empty(field, self.most_steps) for field in schema.per_step}
        self._values = {field.name: _empty(field, self._most_rows) for field in schema.per_sequence}
        self._ends = np.zeros(self._most_rows + 1, dtype=np.int64)
        self._incomplete = np.zeros(self._most_rows, dtype=np.bool_)
        self._ids: list[pa.Array] = []
        self._loose_ids: list[Name] = []
        self.rows = 0

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        return int(self._ends[self.rows])

    @property
    def free_steps(self) -> int:
        """Steps that it has room for."""
        return self.most_steps - self.steps

    @property
    def free_rows(self) -> int:
        """Rows that it has room for."""
        return self._most_rows - self.rows

    @property
    def last_steps(self) -> int:
        """Steps of the last row."""
        return int(self._ends[self.rows] - self._ends[self.rows - 1]) if self.rows else 0

    def begin(self, name: Name) -> None:
        """Open a row without steps."""
        assert self.free_rows
        self._loose_ids.append(name)
        self._ends[self.rows + 1] = self._ends[self.rows]
        self._incomplete[self.rows] = True
        self.rows += 1

    def extend(self, arrays: Mapping[str, Array], start: int, stop: int) -> None:
        """Add some steps of these arrays to the last row."""
        first = self.steps
        last = first + stop - start
        for name, memory in self._steps.items():
            memory[first:last] = arrays[name][start:stop]
        self._ends[self.rows] = last

    def end(self, values: Mapping[str, Array]) -> None:
        """Close the last row with its values per sequence."""
        for name, memory in self._values.items():
            memory[self.rows - 1] = values[name]
        self._incomplete[self.rows - 1] = False

    def add_rows(self, ids: pa.Array, lengths: NDArray[np.int64], arrays: Mapping[str, Array]) -> None:
        """Add closed rows: the steps of all one after the other, and their values per sequence."""
        first, last, rows = self.steps, self.steps + int(lengths.sum()), len(lengths)
        for name, memory in self._steps.items():
            memory[first:last] = arrays[name]
        for name, memory in self._values.items():
            memory[self.rows : self.rows + rows] = arrays[name]
        self._ends[self.rows + 1 : self.rows + rows + 1] = first + np.cumsum(lengths)
        self._incomplete[self.rows : self.rows + rows] = False
        self._settle_ids()
        self._ids.append(ids)
        self.rows += rows

    def lengths(self, rows: int) -> NDArray[np.int64]:
        """The steps of the first rows."""
        return np.diff(self._ends[: rows + 1])

    def batch(self, rows: int) -> pa.RecordBatch:
        """The first rows as a record batch, which is valid until something is added or dropped."""
        self._settle_ids()
        ids = pa.concat_arrays(self._ids)
        self._ids = [ids]
        columns: list[pa.Array] = [ids[:rows]]
        ends, steps = self._ends[: rows + 1], int(self._ends[rows])
        for field in self._schema.fields:
            if field.per == "step":
                columns.append(step_column(field, ends, self._steps[field.name][:steps]))
            else:
                columns.append(value_column(field, self._values[field.name][:rows], self._incomplete[:rows]))
        return pa.record_batch(columns, schema=self._schema.arrow)

    def drop(self, rows: int) -> None:
        """Forget the first rows."""
        self._settle_ids()
        self._ids = [pa.concat_arrays(self._ids)[rows:]]
        steps, end = int(self._ends[rows]), self.steps
        for memory in self._steps.values():
            memory[: end - steps] = memory[steps:end]  # NumPy copes with the overlap
        for memory in (*self._values.values(), self._incomplete):
            memory[: self.rows - rows] = memory[rows : self.rows]
        self._ends[: self.rows - rows + 1] = self._ends[rows : self.rows + 1] - steps
        self.rows -= rows

    def _settle_ids(self) -> None:
        if self._loose_ids:
            self._ids.append(arrow_names(self._schema, self._loose_ids))
            self._loose_ids = []


def arrow_names(schema: Schema, names: list[Any]) -> pa.Array:
    """Names, each checked, as the column that holds them."""
    if schema.id_type == "string":
        return arrow_texts(names)
    return arrow_numbers(np.array(names, dtype=np.int64))


def single_row(
    schema: Schema, name: Name, steps: Mapping[str, Array], values: Mapping[str, Array] | None
) -> pa.RecordBatch:
    """One row as a record batch of its own, without copying its steps; None: its sequence goes on in the next row."""
    columns: list[pa.Array] = [arrow_names(schema, [name])]
    for field in schema.fields:
        if field.per == "step":
            array = steps[field.name]
            columns.append(step_column(field, np.array([0, len(array)]), array))
        else:
            value = np.zeros(field.step_shape, field.storage) if values is None else values[field.name]
            columns.append(value_column(field, value[None], np.array([values is None])))
    return pa.record_batch(columns, schema=schema.arrow)


def step_column(field: Field, ends: NDArray[np.int64], values: Array) -> pa.Array:
    """A column of lists over values that lie one after the other, without a copy."""
    return pa.LargeListArray.from_arrays(arrow_numbers(ends), value_column(field, values), type=field.arrow.type)


def value_column(field: Field, values: Array, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of values, (rows,) or (rows, width), without a copy."""
    present = None if missing is None else ~missing
    if not field.width:
        return arrow_numbers(values, present)
    validity = None if present is None or present.all() else bits_of(present)
    scalars = arrow_numbers(np.ascontiguousarray(values).reshape(-1))
    return pa.Array.from_buffers(field.arrow_value, len(values), [validity], children=[scalars])


def _empty(field: Field, count: int) -> Array:
    return np.empty((count, *field.step_shape), dtype=field.storage)
