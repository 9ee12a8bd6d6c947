"""Steps of many sequences, copied one behind the other: what a batch is made of.

One copy of contiguous memory for each sequence, out of the mapped record batches. Sequences that lie in several pieces
take one copy a piece; where their pieces begin is remembered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.pieces import Pieces
from lowtide.data.disk.shards import Rows
from lowtide.data.fields import Array, Field
from lowtide.errors import LowtideError

Counts = NDArray[np.int64]


class Gather:
    """Reads fields of many sequences of a store at once."""

    def __init__(self, rows: Rows, pieces: Pieces) -> None:
        """Read from these rows."""
        self._rows = rows
        self._pieces = pieces
        self._bounds: dict[int, Counts] = {}

    def steps(self, field: Field, sequences: Counts, starts: Counts, stops: Counts) -> tuple[Array, Counts]:
        """Steps [start, stop) of each of these sequences, and where each one's begin among them.

        The numbers of the sequences are known to be right; the steps are checked.
        """
        offsets: Counts = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum(stops - starts, out=offsets[1:])
        parts = self._whole(field, *self._split(field, sequences, starts, stops))
        values = np.concatenate(parts) if parts else np.empty((0, *field.step_shape), field.storage)
        return values, offsets

    def values(self, field: Field, sequences: Counts) -> Array:
        """The values per sequence of these sequences, (sequences, width) or (sequences,)."""
        result = np.empty((len(sequences), *field.step_shape), dtype=field.storage)
        batches, local = self._rows.locate_all(self._pieces.last_rows(sequences))
        for number in np.unique(batches).tolist():
            chosen = batches == number
            result[chosen] = self._rows.batch(number).values(field.name)[local[chosen]]
        return result

    def bounds(self, field: Field, sequence: int) -> Counts:
        """Where the pieces of a sequence begin, and its end."""
        found = self._bounds.get(sequence)
        if found is None:
            sizes = [len(self._rows.piece(field.name, row)) for row in self._pieces.rows(sequence)]
            found = self._bounds[sequence] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return found

    def _split(self, field: Field, sequences: Counts, starts: Counts, stops: Counts) -> tuple[Counts, Counts, Counts]:
        """Rows, and the steps in each, instead of sequences and the steps in each."""
        rows = self._pieces.first_rows(sequences)
        several = self._pieces.several(sequences)
        if not several.any():
            return rows, starts, stops
        found: list[tuple[int, int, int]] = []
        for sequence, row, start, stop, more in zip(
            *(array.tolist() for array in (sequences, rows, starts, stops, several)), strict=True
        ):
            found += self._spans(field, sequence, row, start, stop) if more else [(row, start, stop)]
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]

    def _spans(self, field: Field, sequence: int, row: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The pieces of one sequence that hold steps [start, stop), and the steps in each."""
        bounds = self.bounds(field, sequence)
        if not 0 <= start <= stop <= bounds[-1]:
            raise _outside(start, stop, int(bounds[-1]))
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        return [
            (
                row + piece,
                max(start, int(bounds[piece])) - int(bounds[piece]),
                min(stop, int(bounds[piece + 1])) - int(bounds[piece]),
            )
            for piece in range(int(first), int(last) + 1)
            if start < stop
        ]

    def _whole(self, field: Field, rows: Counts, starts: Counts, stops: Counts) -> list[Array]:
        """The steps of these rows, not copied yet."""
        batches, local = self._rows.locate_all(rows)
        parts = []
        name = field.name
        for number, row, start, stop in zip(
            batches.tolist(), local.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            column = self._rows.batch(number).steps(name)
            first, end = column.span(row)
            if not 0 <= start <= stop <= end - first:
                raise _outside(start, stop, end - first)
            parts.append(column.values[first + start : first + stop])
        return parts


def _outside(start: int, stop: int, length: int) -> LowtideError:
    return LowtideError(
        what=f"steps {start} to {stop} of a sequence of {length} steps were asked for",
        why="steps are numbered from 0 to the sequence's length",
        fix="ask for steps inside the sequence; if the lengths say that they are there, run store.verify()",
    )
