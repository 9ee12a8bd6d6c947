"""From a draft to a batch: its sequences read, transformed, converted and padded.

Fields that are batched as they are stored go straight from the mapped files into the batch. Of the others, rows are
read some at a time, so that what is between the store and the batch stays in the processor's cache and takes
`GROUP_BYTES`, or the bytes of one row, whatever the batch's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lowtide.data.batch import Batch, Part
from lowtide.data.fields import Array, Field, Role, to_bfloat16
from lowtide.data.frameworks import Arrays
from lowtide.data.loading.drafts import Draft
from lowtide.data.loading.order import Ints
from lowtide.data.loading.padding import pad
from lowtide.data.loading.policy import Spans
from lowtide.data.loading.weights import Weighting, product
from lowtide.data.transforms import Transform, apply_all
from lowtide.data.view import View
from lowtide.errors import LowtideError

GROUP_BYTES = 1 << 20
"""Bytes that are read and transformed together."""

_COPIES = 3
"""Arrays of a group that exist at once, at most: as read, as converted, as transformed."""
_SPANS_BYTES = 1 << 20
"""Room for the spans of a batch and what NumPy and the thread that reads take for themselves: 0.3 MB were seen."""
_WEIGHT_BYTES = 64
"""Of one step while its weight is found: labels, their places among the classes, and weights as float64."""
_ROW_BYTES = 3 * 8 + 1
"""Of lengths, index, start and begins."""
_BATCH_TYPES = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
"""What stored types become in a batch unless another is asked for; whole numbers become int64, as codes are used."""


@dataclass(frozen=True)
class _Column:
    """How one field comes into a batch."""

    field: Field
    transforms: tuple[Transform, ...]
    dtype: str
    per: Literal["step", "sequence", "last"]
    """One value a step, one a row, or that of the row's last step."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one step, or of one row's value."""
        width = len(self.transforms[-1].results) if self.transforms else self.field.width
        return (width,) if self.field.width else ()

    @property
    def bytes(self) -> int:
        """Of one step, or of one row's value."""
        return (2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize) * int(np.prod(self.shape, dtype=int))

    @property
    def as_stored(self) -> bool:
        """Whether the batch holds the very bytes that are on disk: they are copied straight into it."""
        return self.dtype == self.field.dtype and not self.transforms

    @property
    def work_bytes(self) -> int:
        """Of one step while it is transformed."""
        widths = [len(transform.results) for transform in self.transforms]
        return max(self.bytes, self.field.step_bytes, *(8 * width for width in widths))

    def convert(self, stored: Array, offsets: Ints) -> Array:
        """Numbers as the batch holds them, or that become so when they are copied."""
        if self.as_stored:
            return stored
        values = apply_all(self.transforms, self.field.values(stored), offsets, in_place=True)
        return to_bfloat16(values) if self.dtype == "bfloat16" else values


class Collator:
    """Makes batches of one view."""

    def __init__(
        self,
        view: View,
        arrays: Arrays,
        *,
        last: bool = False,
        batch_first: bool = True,
        packed: bool = False,
        dtypes: Mapping[str, str] | None = None,
        weightings: Sequence[Weighting] = (),
    ) -> None:
        """Decide how every field comes into a batch.

        Args:
            view: What is read from.
            arrays: Makes arrays of the framework.
            last: Whether targets per step are those of a row's last step alone.
            batch_first: (B, T, ...) rather than (T, B, ...).
            packed: Whether inputs and targets per step come as PackedSequence.
            dtypes: Types of fields in a batch, where they are not to be float32, float64 or int64.
            weightings: What weighs.

        Raises:
            LowtideError: A type cannot be had, or a field is not there.
        """
        self._view = view
        self._arrays = arrays
        self._batch_first = batch_first
        self._packed = packed
        self._weightings = tuple(weightings)
        asked = dict(dtypes or {})
        for name, dtype in asked.items():
            view.schema.field(name)
            arrays.check_type(dtype)
        self._columns = [self._column(field, asked, last=last) for field in view.schema.fields]

    def __call__(self, draft: Draft) -> Batch:
        """Read and pad a batch."""
        spans = draft.spans
        there = spans.sequence >= 0
        reading = Spans(np.where(there, spans.sequence, 0), spans.start, spans.stop)
        adopt = self._arrays.adopt
        batch = Batch(
            inputs=self._part("inputs", reading, draft.steps),
            targets=self._part("targets", reading, draft.steps),
            static=self._part("static", reading, draft.steps),
            weight=self._weight(reading, draft.steps),
            lengths=adopt(spans.lengths),
            index=adopt(spans.sequence),
            start=adopt(spans.start),
            begins=None if draft.begins is None else adopt(draft.begins),
            steps=draft.steps,
            batch_first=self._batch_first,
            per_step=frozenset(self._names_per_step()),
        )
        return batch.packed() if self._packed else batch

    def bytes_of(self, rows: int, steps: int) -> int:
        """Bytes of a batch of so many rows, padded to so many steps."""
        per_step = sum(column.bytes for column in self._columns if column.per == "step")
        per_row = sum(column.bytes for column in self._columns if column.per != "step") + _ROW_BYTES
        if self._weightings:
            per_step, per_row = (per_step + 4, per_row) if self._weighs_steps else (per_step, per_row + 4)
        return rows * (steps * per_step * (2 if self._packed else 1) + per_row)

    def scratch_bytes(self, rows: int, steps: int) -> int:
        """Bytes beside the batch while one of so many rows, or with rows of so many steps, is made."""
        work = [0]
        for column in self._columns:
            if column.per == "step":
                work.append(0 if column.as_stored else _COPIES * max(GROUP_BYTES, steps * column.work_bytes))
            else:
                work.append(_COPIES * min(max(GROUP_BYTES, column.work_bytes), rows * column.work_bytes))
        if self._weighs_steps:
            work.append(max(GROUP_BYTES, steps * _WEIGHT_BYTES))
        return _SPANS_BYTES + max(work)

    @property
    def _weighs_steps(self) -> bool:
        return any(weighting.per_step for weighting in self._weightings)

    def _column(self, field: Field, asked: Mapping[str, str], *, last: bool) -> _Column:
        transforms = self._view.store.transforms_of(field.name)
        dtype = asked.get(field.name) or _BATCH_TYPES.get(field.dtype, "float32" if transforms else "int64")
        per: Literal["step", "sequence", "last"] = field.per
        if last and field.role == "targets" and field.per == "step":
            per = "last"
        return _Column(field, transforms, dtype, per)

    def _names_per_step(self) -> Iterator[str]:
        for role in ("inputs", "targets"):
            columns = [column for column in self._columns if column.field.role == role]
            for column in columns:
                if column.per == "step":
                    yield role if len(columns) == 1 else f"{role}/{column.field.name}"

    def _part(self, role: Role, spans: Spans, steps: int) -> Part:
        found = {
            column.field.name: self._array(column, spans, steps)
            for column in self._columns
            if column.field.role == role
        }
        return found if len(found) > 1 else next(iter(found.values()), None)

    def _array(self, column: _Column, spans: Spans, steps: int) -> Any:  # noqa: ANN401 - of either framework
        if column.per == "step":
            return self._padded(column, spans, steps)
        array, out = self._arrays.empty((len(spans), *column.shape), column.dtype)
        for group in _groups(np.ones_like(spans.start), max(1, GROUP_BYTES // max(1, column.work_bytes))):
            part = spans[group]
            if column.per == "last":
                stored, offsets = self._view.read(column.field.name, part.sequence, part.stop - 1, part.stop)
            else:
                stored, offsets = self._view.read_static(column.field.name, part.sequence), np.arange(len(part) + 1)
            out[group] = column.convert(stored, offsets)
        return array

    def _padded(self, column: _Column, spans: Spans, steps: int) -> Any:  # noqa: ANN401 - of either framework
        rows = len(spans)
        shape = (rows, steps) if self._batch_first else (steps, rows)
        array, out = self._arrays.empty((*shape, *column.shape), column.dtype)
        if column.as_stored:
            self._view.fill(
                column.field.name, spans.sequence, spans.start, spans.stop, out, batch_first=self._batch_first
            )
            return array
        for group in _groups(spans.lengths, max(1, GROUP_BYTES // max(1, column.work_bytes))):
            part = spans[group]
            stored, offsets = self._view.read(column.field.name, part.sequence, part.start, part.stop)
            target = out[group] if self._batch_first else out[:, group]
            pad(target, column.convert(stored, offsets), offsets, batch_first=self._batch_first)
        return array

    def _weight(self, spans: Spans, steps: int) -> Any:  # noqa: ANN401 - of either framework
        if not self._weightings:
            return None
        if not self._weighs_steps:
            weights, _ = product(self._weightings, spans)
            return self._arrays.adopt(np.where(spans.lengths > 0, weights, 0).astype(np.float32))
        shape = (len(spans), steps) if self._batch_first else (steps, len(spans))
        array, out = self._arrays.empty(shape, "float32")
        for group in _groups(spans.lengths, GROUP_BYTES // _WEIGHT_BYTES):
            part = spans[group]
            weights, _ = product(self._weightings, part)
            target = out[group] if self._batch_first else out[:, group]
            pad(target, weights, np.concatenate([[0], np.cumsum(part.lengths)]), batch_first=self._batch_first)
        return array


def _groups(lengths: Ints, steps: int) -> Iterator[slice]:
    """Runs of rows of about so many steps together."""
    full = np.flatnonzero(np.diff(np.cumsum(lengths) // steps)) + 1
    bounds = [0, *full.tolist(), len(lengths)]
    yield from map(slice, bounds[:-1], bounds[1:])


Augment = Callable[[Batch, np.random.Generator], Batch]
"""Changes a batch, given random numbers that belong to it."""


def augmented(batch: Batch, augment: Augment, key: int) -> Batch:
    """The batch as a user's function changes it.

    Raises:
        LowtideError: The function returns no batch, or one of other rows.
    """
    changed: object = augment(batch, np.random.Generator(np.random.Philox(key)))
    if not isinstance(changed, Batch) or len(changed.lengths) != len(batch.lengths):
        raise LowtideError(
            what=f"augment returned {changed!r:.200} for {batch!r:.200}",
            why="it changes the arrays of a batch, not which sequences it holds",
            fix="return dataclasses.replace(batch, inputs=...)",
        )
    return changed
