"""The names of a store's sequences, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.arrow import arrow_mask, arrow_numbers
from lowtide.data.disk.pieces import Pieces
from lowtide.data.disk.row_buffer import Name
from lowtide.data.disk.shards import Rows


class Ids:
    """Names by number: `ids[5]`, `ids[5:8]`, `len(ids)`, iteration; and `chunks()` for all in bounded memory."""

    def __init__(self, rows: Rows, pieces: Pieces, index: NDArray[np.int64] | None, count: int) -> None:
        """Of the sequences in `index`; None: of all."""
        self._rows = rows
        self._pieces = pieces
        self._index = index
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Name: ...
    @overload
    def __getitem__(self, number: slice) -> list[Name]: ...
    def __getitem__(self, number: int | slice) -> Name | list[Name]:
        if isinstance(number, slice):
            names: list[Name] = self.take(np.arange(*number.indices(self._count))).to_pylist()
            return names
        sequence = range(self._count)[number]
        if self._index is not None:
            sequence = int(self._index[sequence])
        columns, row = self._rows.locate(self._pieces.rows(sequence)[0])
        name: Name = columns.ids[row].as_py()
        return name

    def __iter__(self) -> Iterator[Name]:
        for chunk in self.chunks():
            yield from chunk.to_pylist()

    def chunks(self) -> Iterator[pa.Array]:
        """All names in order, some tens of thousands at a time."""
        if self._index is None:
            yield from self._all()
            return
        most = 1 << 16
        for start in range(0, self._count, most):
            yield self.take(np.arange(start, min(self._count, start + most)))

    def take(self, numbers: NDArray[np.int64]) -> pa.Array:
        """The names of these sequences."""
        sequences = numbers if self._index is None else self._index[numbers]
        batches, local = self._rows.locate_all(self._pieces.first_rows(sequences))
        order = np.argsort(batches, kind="stable")
        found, counts = np.unique(batches, return_counts=True)
        parts, done = [], 0
        for number, count in zip(found.tolist(), counts.tolist(), strict=True):
            parts.append(self._rows.batch(number).ids.take(arrow_numbers(local[order[done : done + count]])))
            done += count
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(arrow_numbers(back)) if parts else self._rows.batch(0).ids[:0]

    def _all(self) -> Iterator[pa.Array]:
        first = 0
        continued = self._pieces.continued_rows
        for number in range(self._rows.batches):
            names = self._rows.batch(number).ids
            last = first + len(names)
            begins = np.ones(len(names), dtype=np.bool_)
            low, high = np.searchsorted(continued, [first, last])
            begins[continued[low:high] - first] = False
            yield names.filter(arrow_mask(begins)) if high > low else names
            first = last
