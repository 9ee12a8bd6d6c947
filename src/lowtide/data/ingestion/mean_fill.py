"""Filling with the mean: of the training part alone, so that nothing is learnt from what is tested on.

What belongs to that part, and so the mean, is known only once all sequences are: they are written to a store that goes
again, with NaN where values are missing, and from there, filled, to the one that stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.fields import Array, Field
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.chunk import Chunk, offsets_of
from lowtide.data.store import Store
from lowtide.data.view import Counts, View
from lowtide.errors import LowtideError

_STEPS = 1 << 16
_SEQUENCES = 1 << 14

Means = Mapping[str, NDArray[np.float64]]
"""By field: one number a feature, NaN where nothing is filled with it."""


def wants_means(plans: Sequence[FieldPlan]) -> bool:
    """Whether any column is filled with its mean."""
    return any(policy.kind == "mean" for plan in plans for policy in plan.policies)


def means_of(view: View, plans: Sequence[FieldPlan]) -> Means:
    """The means of the columns that are filled with them, over a view.

    Raises:
        LowtideError: A column has no value there.
    """
    return {
        plan.field.name: column_means(view, plan.field, [policy.kind == "mean" for policy in plan.policies])
        for plan in _concerned(plans)
    }


def column_means(view: View, field: Field, wanted: Sequence[bool]) -> NDArray[np.float64]:
    """The means of a field's columns over a view; NaN for those that are not wanted.

    Raises:
        LowtideError: A column that is wanted has no value there.
    """
    total = np.zeros(len(wanted))
    count = np.zeros(len(wanted), dtype=np.int64)
    for values in _values(view, field):
        table = values.reshape(len(values), -1).astype(np.float64)
        there = ~np.isnan(table)
        total += np.where(there, table, 0).sum(axis=0)
        count += there.sum(axis=0)
    for feature in np.flatnonzero(np.array(wanted) & (count == 0)):
        raise LowtideError(
            what=f"the column {field.columns[feature]!r} has no value in the training part",
            why="there is nothing to take the mean of",
            fix="fill it with a number, or leave it out of the inputs",
        )
    return np.where(wanted, total / np.maximum(1, count), np.nan)


def by_column(plans: Sequence[FieldPlan], means: Means) -> dict[str, float]:
    """The means by the names of their columns, for the notes."""
    return {
        column: float(mean)
        for plan in _concerned(plans)
        for column, mean in zip(plan.field.columns, means[plan.field.name], strict=True)
        if not np.isnan(mean)
    }


@dataclass(frozen=True)
class Refill:
    """The sequences of a store once more, with means where values are missing."""

    store: Store
    plans: Sequence[FieldPlan]
    means: Means

    def chunks(self) -> Iterator[Chunk]:
        """All sequences in order."""
        lengths = self.store.lengths
        ids = self.store.ids_of(None)
        for numbers, starts, stops in _spans(lengths):
            goes_on = bool(stops[-1] < lengths[numbers[-1]])
            yield self._chunk(numbers, ids.take(numbers), starts, stops, goes_on=goes_on)

    def _chunk(self, numbers: Array, names: pa.Array, starts: Array, stops: Array, *, goes_on: bool) -> Chunk:
        steps, values = {}, {}
        for field in self.store.schema.fields:
            if field.per == "step":
                found, _ = self.store.read_steps(field.name, numbers, starts, stops)
                steps[field.name] = self._filled(field, field.values(found))
            else:
                found = self.store.read_values(field.name, numbers)
                values[field.name] = self._filled(field, field.values(found))
        return Chunk(
            names,
            offsets_of(stops - starts),
            steps,
            values,
            {},
            None,
            continues=bool(starts[0]),
            goes_on=goes_on,
        )

    def _filled(self, field: Field, values: Array) -> Array:
        means = self.means.get(self._source_of(field))
        if means is None:
            return values
        missing = np.isnan(values)
        if not missing.any():
            return values
        filled = np.broadcast_to(means.reshape(field.step_shape), values.shape)
        return np.where(missing, filled, values).astype(values.dtype)

    def _source_of(self, field: Field) -> str:
        """The field whose values these are, shifted or not."""
        plan = next(plan for plan in self.plans if plan.field.name == field.name)
        return plan.shifted_from or field.name


def _concerned(plans: Sequence[FieldPlan]) -> list[FieldPlan]:
    return [plan for plan in plans if plan.shifted_from is None and any(p.kind == "mean" for p in plan.policies)]


def _values(view: View, field: Field) -> Iterator[Array]:
    """A field's values over a view, some at a time."""
    if field.per == "sequence":
        for first in range(0, len(view), _SEQUENCES):
            numbers = np.arange(first, min(first + _SEQUENCES, len(view)))
            yield field.values(view.read_static(field.name, numbers))
        return
    for numbers, starts, stops in _spans(view.lengths):
        found, _ = view.read(field.name, numbers, starts, stops)
        yield field.values(found)


def _spans(lengths: Counts) -> Iterator[tuple[Counts, Counts, Counts]]:
    """All steps of all sequences, some at a time: sequences, and from where to where; a long one alone, in pieces."""
    first = 0
    while first < len(lengths):
        some = np.asarray(lengths[first : first + _SEQUENCES])
        count = int(np.searchsorted(np.cumsum(some), _STEPS, side="right"))
        if count:
            yield np.arange(first, first + count), np.zeros(count, dtype=np.int64), some[:count]
        else:
            for start in range(0, int(some[0]), _STEPS):
                yield np.array([first]), np.array([start]), np.array([min(start + _STEPS, int(some[0]))])
        first += max(1, count)
