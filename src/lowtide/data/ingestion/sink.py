"""Chunks into a store: whole sequences many at once, those that chunks cut bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lowtide.data.disk.row_buffer import Name, step_column, value_column
from lowtide.data.disk.writer import StoreWriter
from lowtide.data.fields import Array, Schema
from lowtide.data.ingestion.dtypes import HalfReport, stored
from lowtide.data.ingestion.filling import drop_sequences
from lowtide.data.ingestion.sources.chunk import Chunk
from lowtide.data.ingestion.tally import Tally
from lowtide.data.ingestion.unique_names import UniqueNames
from lowtide.data.splitting.splits import SplitMaker, count_before


@dataclass
class _Open:
    """A sequence that chunks cut."""

    name: Name
    names: pa.Array
    values: Mapping[str, Array]
    steps: int = 0
    before: Array | None = None
    """Steps before each boundary of a split by time."""


class Sink:
    """Takes chunks in order."""

    def __init__(
        self,
        writer: StoreWriter,
        schema: Schema,
        tally: Tally,
        *,
        splits: SplitMaker | None,
        names: UniqueNames | None,
    ) -> None:
        """Write to an open writer.

        Args:
            writer: What it has already, from an interrupted run, is not written again.
            schema: The fields.
            tally: Counts sequences without a step, which are left out.
            splits: Is told of every sequence.
            names: Watches that no name comes twice, where the source does not see to that.
        """
        self._writer = writer
        self._schema = schema
        self._tally = tally
        self._splits = splits
        self._names = names
        self._skip = writer.sequences
        self._open: _Open | None = None
        self.halves = [HalfReport(field.name) for field in schema.fields if field.dtype == "float32"]
        self.sequences = 0
        self.steps = 0

    def put(self, chunk: Chunk) -> None:
        """Take one more chunk."""
        for report in self.halves:
            found = chunk.steps.get(report.field, chunk.values.get(report.field))
            if found is not None:
                report.look(found)
        self.steps += int(chunk.offsets[-1])
        first, last = 0, len(chunk.names)
        if chunk.continues:
            self._extend(chunk, 0)
            first = 1
        if not (chunk.continues and chunk.goes_on and last == 1):
            if chunk.continues:
                self._end()
            if chunk.goes_on:
                last -= 1
                self._add(chunk, first, last)
                self._begin(chunk, last)
                self._extend(chunk, last)
            else:
                self._add(chunk, first, last)

    def _add(self, chunk: Chunk, first: int, last: int) -> None:
        """Add whole sequences."""
        if first == last:
            return
        some = _cut(chunk, first, last)
        empty = some.lengths == 0
        if empty.any():
            self._tally.dropped["sequences without a step"] += int(empty.sum())
            some = drop_sequences(some, empty)
        before = None
        if self._splits is not None and self._splits.boundaries:
            assert some.order is not None
            before = count_before(some.order, some.offsets, self._splits.boundaries)
        self._count(some.names, some.lengths, before)
        skipped = min(self._skip, len(some.names))
        self._skip -= skipped
        if skipped < len(some.names):
            self._writer.add_rows(self._rows(_cut(some, skipped, len(some.names))))

    def _rows(self, chunk: Chunk) -> pa.RecordBatch:
        columns: list[pa.Array] = [chunk.names]
        for field in self._schema.fields:
            if field.per == "step":
                columns.append(step_column(field, chunk.offsets, stored(chunk.steps[field.name], field)))
            else:
                columns.append(value_column(field, stored(chunk.values[field.name], field)))
        return pa.record_batch(columns, schema=self._schema.arrow)

    def _begin(self, chunk: Chunk, place: int) -> None:
        names = chunk.names[place : place + 1]
        values = {name: array[place] for name, array in chunk.values.items()}
        self._open = _Open(names[0].as_py(), names, values)

    def _extend(self, chunk: Chunk, place: int) -> None:
        held = self._open
        assert held is not None
        start, stop = int(chunk.offsets[place]), int(chunk.offsets[place + 1])
        if start == stop:
            return
        if self._splits is not None and self._splits.boundaries:
            assert chunk.order is not None
            counts = count_before(chunk.order, chunk.offsets[place : place + 2], self._splits.boundaries)
            held.before = counts if held.before is None else held.before + counts
        if not self._skip:
            if not held.steps:
                self._writer.begin(held.name)
            fields = {field.name: field for field in self._schema.per_step}
            self._writer.extend({name: stored(chunk.steps[name][start:stop], fields[name]) for name in fields})
        held.steps += stop - start

    def _end(self) -> None:
        held = self._open
        assert held is not None
        self._open = None
        if not held.steps:
            self._tally.dropped["sequences without a step"] += 1
            return
        self._count(held.names, np.array([held.steps], dtype=np.int64), held.before)
        if self._skip:
            self._skip -= 1
            return
        fields = {field.name: field for field in self._schema.per_sequence}
        self._writer.end({name: stored(np.asarray(held.values[name]), fields[name]) for name in fields})

    def _count(self, names: pa.Array, lengths: Array, before: Array | None) -> None:
        self.sequences += len(names)
        if self._splits is not None:
            self._splits.add(names, lengths, before)
        if self._names is not None:
            self._names.add(names)


def _cut(chunk: Chunk, first: int, last: int) -> Chunk:
    """Some of a chunk's sequences."""
    if (first, last) == (0, len(chunk.names)):
        return replace(chunk, continues=False, goes_on=False)
    start, stop = int(chunk.offsets[first]), int(chunk.offsets[last])
    return Chunk(
        names=chunk.names[first:last],
        offsets=chunk.offsets[first : last + 1] - start,
        steps={name: array[start:stop] for name, array in chunk.steps.items()},
        values={name: array[first:last] for name, array in chunk.values.items()},
        missing={},
        order=None if chunk.order is None else chunk.order[start:stop],
        continues=False,
        goes_on=False,
    )
