"""Steps of many sequences, copied one behind the other or straight into a padded array: what a batch is made of.

One copy of contiguous memory for each sequence, out of the mapped record batches. Sequences that lie in several pieces
take one copy a piece; where their pieces begin is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.pieces import Pieces
from lowtide.data.disk.shards import Rows
from lowtide.data.disk.step_tables import clear_padding
from lowtide.data.fields import Array, Field
from lowtide.errors import LowtideError

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class _Runs:
    """Runs of steps that lie in one row each."""

    row: Counts
    start: Counts
    stop: Counts
    owner: Counts
    """Which of the sequences that were asked for a run belongs to."""
    before: Counts
    """Steps of the same sequence in earlier runs."""


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
        np.cumsum(np.maximum(stops - starts, 0), out=offsets[1:])
        values = np.empty((offsets[-1], *field.step_shape), field.storage)
        runs = self._runs(field, sequences, starts, stops)
        self._copy(field, runs, np.zeros_like(runs.owner), offsets[runs.owner] + runs.before, values[np.newaxis])
        return values, offsets

    def fill(
        self, field: Field, sequences: Counts, starts: Counts, stops: Counts, out: Array, *, batch_first: bool
    ) -> None:
        """Fill a padded array with steps [start, stop) of each of these sequences, and zeros behind them.

        Args:
            field: A field with values per step.
            sequences: Numbers that are known to be right.
            starts: The first step of each; checked, as the stops are.
            stops: The step behind the last of each.
            out: (sequences, steps, ...), or (steps, sequences, ...) if not batch_first, in the type on disk.
            batch_first: Which axis of `out` is which.
        """
        rows = out.shape[0 if batch_first else 1]
        if (out.dtype, out.shape[2:], rows) != (field.storage, field.step_shape, len(sequences)):
            raise LowtideError(
                what=f"an array of shape {out.shape} and type {out.dtype} was given for {len(sequences)} sequences",
                why=f"field {field.name!r} has steps of shape {field.step_shape} and type {field.storage}",
                fix="give an array of that type with a row for each sequence",
            )
        runs = self._runs(field, sequences, starts, stops)
        self._copy(field, runs, runs.owner, runs.before, out, batch_first=batch_first)
        clear_padding(out, stops - starts, batch_first=batch_first)

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

    def _copy(
        self, field: Field, runs: _Runs, out_rows: Counts, out_steps: Counts, out: Array, *, batch_first: bool = True
    ) -> None:
        batches, local = self._rows.locate_all(runs.row)
        tables = self._rows.tables(field, batches)
        spans = np.stack([batches, local, runs.start, runs.stop, out_rows, out_steps], axis=1)
        wrong = tables.copy(spans, out, batch_first=batch_first)
        if wrong is not None:
            first, end = self._rows.batch(int(batches[wrong])).steps(field.name).span(int(local[wrong]))
            raise _outside(int(runs.start[wrong]), int(runs.stop[wrong]), end - first)

    def _runs(self, field: Field, sequences: Counts, starts: Counts, stops: Counts) -> _Runs:
        """The rows that hold these steps, and the steps in each."""
        rows = self._pieces.first_rows(sequences)
        whole = np.arange(len(sequences))
        several = self._pieces.several(sequences)
        if not several.any():
            return _Runs(rows, starts, stops, whole, np.zeros_like(whole))
        found: list[tuple[int, int, int, int, int]] = []
        for owner, sequence, row, start, stop, more in zip(
            *(array.tolist() for array in (whole, sequences, rows, starts, stops, several)), strict=True
        ):
            found += self._spans(field, owner, sequence, row, start, stop) if more else [(row, start, stop, owner, 0)]
        return _Runs(*np.array(found, dtype=np.int64).reshape(-1, 5).T)

    def _spans(
        self, field: Field, owner: int, sequence: int, row: int, start: int, stop: int
    ) -> list[tuple[int, int, int, int, int]]:
        """The pieces of one sequence that hold steps [start, stop), as `_Runs` has them."""
        bounds = self.bounds(field, sequence)
        if not 0 <= start <= stop <= bounds[-1]:
            raise _outside(start, stop, int(bounds[-1]))
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        edges = bounds.tolist()
        return [
            (
                row + piece,
                max(start, edges[piece]) - edges[piece],
                min(stop, edges[piece + 1]) - edges[piece],
                owner,
                max(start, edges[piece]) - start,
            )
            for piece in range(int(first), int(last) + 1)
            if start < stop
        ]


def _outside(start: int, stop: int, length: int) -> LowtideError:
    return LowtideError(
        what=f"steps {start} to {stop} of a sequence of {length} steps were asked for",
        why="steps are numbered from 0 to the sequence's length",
        fix="ask for steps inside the sequence; if the lengths say that they are there, run store.verify()",
    )
