"""Sequences in, record batches out: how they are gathered, and where long ones are cut into pieces.

Short sequences wait together until a batch is full, and are never cut. One that is larger than a batch is written from
where it lies, in pieces no larger than a shard; where it comes bit by bit, in pieces of a batch. Memory is that of one
batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.arrivals import check_keys, check_name, check_rows, check_steps, check_values
from lowtide.data.disk.row_buffer import Name, RowBuffer, single_row
from lowtide.data.disk.shard_files import ShardFiles
from lowtide.data.fields import Array, Schema
from lowtide.errors import LowtideError

_BATCH_BYTES = 32 << 20


class RowStream:
    """Gathers rows, and hands them on in batches."""

    def __init__(self, schema: Schema, files: ShardFiles, *, shard_bytes: int) -> None:
        """Begin behind what the files hold."""
        self._schema = schema
        self._files = files
        self._rows = RowBuffer(schema, min(_BATCH_BYTES, shard_bytes))
        self._piece_steps = max(1, shard_bytes // sum(field.step_bytes for field in schema.per_step))
        self._open: Name | None = None
        self.sequences = files.written.sequences
        """Sequences that are whole, written or waiting."""

    def add(self, name: Name, arrays: Mapping[str, Array]) -> None:
        """One whole sequence."""
        name = self._next(name)
        check_keys(self._schema.fields, name, arrays)
        steps, length = check_steps(self._schema, name, arrays)
        self._place(name, steps, check_values(self._schema, name, arrays), length)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Many whole sequences."""
        self._refuse_open()
        ids, lengths, arrays = check_rows(self._schema, rows)
        ends: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths)])
        row = 0
        while row < len(lengths):
            fitting = int(np.searchsorted(ends, ends[row] + self._rows.free_steps, side="right")) - 1
            last = max(row + 1, min(fitting, row + self._rows.free_rows))
            part = self._cut(arrays, ends, row, last)
            if fitting > row and self._rows.free_rows:
                self._rows.add_rows(ids[row:last], lengths[row:last], part)
                self.sequences += last - row
            else:
                values = {field.name: part[field.name][0] for field in self._schema.per_sequence}
                self._place(ids[row].as_py(), part, values, int(lengths[row]))
            row = last

    def begin(self, name: Name) -> None:
        """A sequence whose steps come bit by bit."""
        name = self._next(name)
        if not self._rows.free_rows:
            self._flush(self._rows.rows)
        self._rows.begin(name)
        self._open = name

    def extend(self, arrays: Mapping[str, Array]) -> None:
        """More steps of it."""
        name = self._begun()
        check_keys(self._schema.per_step, name, arrays)
        steps, length = check_steps(self._schema, name, arrays)
        done = 0
        while done < length:
            if not self._rows.free_steps:
                self._make_room(name)
            until = min(length, done + self._rows.free_steps)
            self._rows.extend(steps, done, until)
            done = until

    def end(self, values: Mapping[str, Array]) -> None:
        """Its end."""
        name = self._begun()
        check_keys(self._schema.per_sequence, name, values)
        self._rows.end(check_values(self._schema, name, values))
        self.sequences += 1
        self._open = None

    def finish(self) -> None:
        """Hand on what waits."""
        self._refuse_open()
        if self._rows.rows:
            self._flush(self._rows.rows)

    def _place(self, name: Name, steps: Mapping[str, Array], values: Mapping[str, Array], length: int) -> None:
        """Put a whole sequence where it belongs: among those that wait, or straight into the files."""
        if self._rows.rows and (not self._rows.free_rows or self._rows.free_steps < length):
            self._flush(self._rows.rows)
        if length <= self._rows.free_steps:
            self._rows.begin(name)
            self._rows.extend(steps, 0, length)
            self._rows.end(values)
        else:
            self._write_long(name, steps, values, length)
        self.sequences += 1

    def _write_long(self, name: Name, steps: Mapping[str, Array], values: Mapping[str, Array], length: int) -> None:
        for start in range(0, length, self._piece_steps):
            stop = min(length, start + self._piece_steps)
            piece = {key: array[start:stop] for key, array in steps.items()}
            batch = single_row(self._schema, name, piece, values if stop == length else None)
            self._files.write(batch, np.array([stop - start]), incomplete=stop < length)

    def _make_room(self, name: Name) -> None:
        """Hand on the whole rows; where there is none but the open one, hand that on as a piece."""
        if self._rows.rows > 1:
            self._flush(self._rows.rows - 1)
            return
        self._flush(1, incomplete=True)
        self._rows.begin(name)

    def _flush(self, rows: int, *, incomplete: bool = False) -> None:
        self._files.write(self._rows.batch(rows), self._rows.lengths(rows), incomplete=incomplete)
        self._rows.drop(rows)

    def _cut(self, arrays: Mapping[str, Array], ends: NDArray[np.int64], row: int, last: int) -> dict[str, Array]:
        steps = {field.name: arrays[field.name][ends[row] : ends[last]] for field in self._schema.per_step}
        return steps | {field.name: arrays[field.name][row:last] for field in self._schema.per_sequence}

    def _next(self, name: object) -> Name:
        self._refuse_open()
        return check_name(self._schema, name)

    def _begun(self) -> Name:
        if self._open is None:
            raise LowtideError(
                what="steps were given to no sequence", why="none was begun", fix="call begin(name) before"
            )
        return self._open

    def _refuse_open(self) -> None:
        if self._open is not None:
            raise LowtideError(
                what=f"sequence {self._open!r} was begun and not ended",
                why="sequences lie one behind the other",
                fix="call end(...) before anything else is added or committed",
            )
