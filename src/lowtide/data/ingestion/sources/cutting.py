"""Sorted rows cut at the sequence key, batch by batch, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.disk.row_buffer import Name
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.chunk import Mask, Raw, RawChunk
from lowtide.errors import LowtideError

SEQUENCE = "s"
ORDER = "o"


class Complaints(Protocol):
    """Errors by whoever can find the rows again."""

    def no_key(self, alias: str) -> LowtideError:
        """A row without its sequence or order."""

    def twice(self, sequence: Name, order: pa.Scalar) -> LowtideError:
        """Two rows of one sequence with the same order."""

    def changes(self, sequence: Name, column: str, values: tuple[object, object]) -> LowtideError:
        """A value per sequence that is not the same in all of its rows."""


@dataclass(frozen=True)
class Cutting:
    """What the batches hold: SEQUENCE and ORDER where asked for, and f0_0, f0_1, ... for the fields' features."""

    fields: Sequence[FieldPlan]
    keyed: bool
    """Whether there is a sequence key; otherwise everything is one sequence."""
    unkeyed_name: int
    """What that sequence is called."""
    ordered: bool
    """Whether there is an order."""
    refuse_duplicates: bool
    """Whether rows of one order are an error; otherwise all but the first go, or stay where `keep_duplicates`."""
    keep_duplicates: bool


@dataclass
class _Border:
    """The last row of the batch before."""

    key: pa.Array | None = None
    order: pa.Array | None = None
    values: dict[str, list[pa.Array]] = field(default_factory=dict)
    """Of the last row that stayed, by field."""


class Cutter:
    """Takes batches in order, and gives a chunk for each, one batch late: a chunk says whether it goes on."""

    def __init__(self, cutting: Cutting, complaints: Complaints) -> None:
        """Begin before the first batch."""
        self._cutting = cutting
        self._complaints = complaints
        self._border: _Border | None = None
        self._waiting: RawChunk | None = None
        self.duplicates = 0
        """Rows that were left out."""

    def cut(self, batch: pa.RecordBatch) -> Iterator[RawChunk]:
        """Take a batch, of at least one row."""
        for alias in self._aliases:
            if batch.column(alias).null_count:
                raise self._complaints.no_key(alias)
        begins = self._begins(batch)
        again = self._repeats(batch, begins)
        last = {alias: batch.column(alias)[-1:] for alias in self._aliases}
        values = {} if self._border is None else self._border.values
        border = _Border(last.get(SEQUENCE), last.get(ORDER), values)
        if again is not None:
            # The first row of a sequence repeats none, so that every beginning stays.
            self.duplicates += int(again.sum())
            batch, begins = batch.filter(pa.array(~again)), begins[~again]
        if batch.num_rows:
            chunk = self._chunk(batch, begins)
            border.values = {name: [column[-1:] for column in columns] for name, columns in self._per_sequence(batch)}
            yield from self.finish(goes_on=chunk.continues)
            self._waiting = chunk
        self._border = border

    def finish(self, *, goes_on: bool = False) -> Iterator[RawChunk]:
        """The chunk that waits, complete now."""
        if self._waiting is not None:
            yield replace(self._waiting, goes_on=goes_on)
        self._waiting = None

    @property
    def _aliases(self) -> list[str]:
        return [SEQUENCE] * self._cutting.keyed + [ORDER] * self._cutting.ordered

    def _begins(self, batch: pa.RecordBatch) -> Mask:
        """Which rows begin a sequence."""
        begins = np.zeros(batch.num_rows, dtype=np.bool_)
        if self._border is None:
            begins[0] = True
        if self._cutting.keyed:
            keys = batch.column(SEQUENCE)
            begins[1:] = differ(keys[1:], keys[:-1])
            if self._border is not None:
                begins[0] = differ(keys[:1], self._border.key)[0]
        return begins

    def _repeats(self, batch: pa.RecordBatch, begins: Mask) -> Mask | None:
        """Which rows have the order of the row before; None: none has."""
        if not self._cutting.ordered or self._cutting.keep_duplicates:
            return None
        orders = batch.column(ORDER)
        again = ~begins
        again[1:] &= ~differ(orders[1:], orders[:-1])
        if again[0] and self._border is not None:
            again[0] = not differ(orders[:1], self._border.order)[0]
        if not again.any():
            return None
        if self._cutting.refuse_duplicates:
            row = int(np.argmax(again))
            raise self._complaints.twice(self._name(batch, row), orders[row])
        return again

    def _chunk(self, batch: pa.RecordBatch, begins: Mask) -> RawChunk:
        for name, columns in self._per_sequence(batch):
            self._refuse_changes(batch, name, columns, begins)
        starts = np.flatnonzero(begins) if begins[0] else np.concatenate([[0], np.flatnonzero(begins)])
        taken = pa.array(starts)
        names = pa.array([self._cutting.unkeyed_name], pa.int64())
        if self._cutting.keyed:
            names = batch.column(SEQUENCE).take(taken)
        steps: dict[str, Raw] = {
            plan.field.name: _columns(batch, number, plan)
            for number, plan in enumerate(self._cutting.fields)
            if plan.field.per == "step"
        }
        values: dict[str, Raw] = {
            name: [column.take(taken) for column in columns] for name, columns in self._per_sequence(batch)
        }
        order = batch.column(ORDER) if self._cutting.ordered else None
        offsets = np.append(starts, batch.num_rows).astype(np.int64)
        return RawChunk(names, offsets, steps, values, order, continues=not begins[0])

    def _refuse_changes(self, batch: pa.RecordBatch, name: str, columns: list[pa.Array], begins: Mask) -> None:
        before = [] if self._border is None else self._border.values.get(name, [])
        for place, column in enumerate(columns):
            changes = np.zeros(len(column), dtype=np.bool_)
            changes[1:] = differ(column[1:], column[:-1])
            if before:
                changes[0] = differ(column[:1], before[place])[0]
            changes &= ~begins
            if changes.any():
                row = int(np.argmax(changes))
                other = column[row - 1] if row else before[place][0]
                plan = next(plan for plan in self._cutting.fields if plan.field.name == name)
                values = (other.as_py(), column[row].as_py())
                raise self._complaints.changes(self._name(batch, row), plan.columns[place], values)

    def _per_sequence(self, batch: pa.RecordBatch) -> list[tuple[str, list[pa.Array]]]:
        return [
            (plan.field.name, _columns(batch, number, plan))
            for number, plan in enumerate(self._cutting.fields)
            if plan.field.per == "sequence"
        ]

    def _name(self, batch: pa.RecordBatch, row: int) -> Name:
        name: Name = batch.column(SEQUENCE)[row].as_py() if self._cutting.keyed else self._cutting.unkeyed_name
        return name


def differ(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Where two arrays differ; missing values, and NaN, are equal to themselves."""
    unequal = pc.not_equal(left, right)
    if unequal.null_count:
        unequal = pc.if_else(pc.is_valid(unequal), unequal, pc.xor(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        unequal = pc.and_not(unequal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), fill_value=False))
    different: NDArray[np.bool_] = unequal.to_numpy(zero_copy_only=False)
    return different


def _columns(batch: pa.RecordBatch, number: int, plan: FieldPlan) -> list[pa.Array]:
    return [batch.column(f"f{number}_{feature}") for feature in range(len(plan.columns))]
