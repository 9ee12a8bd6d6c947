"""Rows of a store that contradict themselves or the lengths, although their bytes are those that were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.lengths import map_lengths
from lowtide.data.disk.manifest import Manifest
from lowtide.data.disk.shards import Columns, Rows
from lowtide.errors import LowtideError

Counts = NDArray[np.int64]


def faults_of_rows(store: Path, manifest: Manifest) -> dict[str, str]:
    """What is wrong with the first batch of each shard that has something wrong, by the shard's path."""
    faults: dict[str, str] = {}
    rows = Rows(store, manifest.shards, manifest.schema)
    check = _Lengths(map_lengths(store / manifest.lengths.path, manifest.sequences), manifest.continued_rows)
    shards = [shard.file.path for shard in manifest.shards for _ in shard.batches]
    for number, shard in enumerate(shards):
        try:
            columns = rows.batch(number)
            columns.validate()
            fault = check.fault(_steps(columns, manifest), columns.missing)
        except LowtideError as error:
            fault = error.what
        if fault is not None:
            faults.setdefault(shard, fault)
    if not faults and check.rest:
        faults[shards[-1]] = check.rest
    return faults


def _steps(columns: Columns, manifest: Manifest) -> list[Counts]:
    """The steps of each row, as each field per step has them."""
    return [np.diff(columns.steps(field.name).offsets) for field in manifest.schema.per_step]


class _Lengths:
    """Compares the steps of rows, batch by batch in order, with the lengths of the sequences that they belong to."""

    def __init__(self, lengths: Counts, continued_rows: Counts) -> None:
        self._lengths = lengths
        self._continued = continued_rows
        self._row = 0
        self._sequence = -1
        """The sequence that the last row belongs to."""
        self._steps = 0
        """The steps that it has had so far."""

    @property
    def rest(self) -> str | None:
        """What is wrong with the last sequence."""
        return self._fault_of(np.array([self._sequence]), np.array([self._steps]))

    def fault(self, steps: list[Counts], missing: NDArray[np.bool_]) -> str | None:
        """What is wrong with the next batch.

        Args:
            steps: The steps of each row, by field.
            missing: Rows without values per sequence: such as are continued in the next row.
        """
        if any(not np.array_equal(steps[0], other) for other in steps):
            return "fields of one row have different lengths"
        rows = np.arange(self._row, self._row + len(missing))
        self._row += len(missing)
        if not np.isin(rows[missing] + 1, self._continued).all():
            return "values per sequence are missing"
        owners = rows - np.searchsorted(self._continued, rows, side="right")
        sequences, first = np.unique(owners, return_index=True)
        totals = np.add.reduceat(steps[0], first)
        if sequences[0] == self._sequence:
            totals[0] += self._steps
        else:
            sequences, totals = np.append(self._sequence, sequences), np.append(self._steps, totals)
        self._sequence, self._steps = int(sequences[-1]), int(totals[-1])
        ended = sequences[:-1] >= 0
        return self._fault_of(sequences[:-1][ended], totals[:-1][ended])

    def _fault_of(self, sequences: Counts, totals: Counts) -> str | None:
        wrong = np.flatnonzero(np.asarray(self._lengths)[sequences] != totals)
        if not len(wrong):
            return None
        sequence, steps = int(sequences[wrong[0]]), int(totals[wrong[0]])
        return f"sequence {sequence} has {steps} steps, and its length is {self._lengths[sequence]}"
