"""Predictions on windows and other parts, brought together per sequence again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from lowtide.data.batch import Batch
from lowtide.data.fields import Array
from lowtide.data.frameworks import load
from lowtide.data.loading.policy import Items
from lowtide.data.view import View
from lowtide.errors import LowtideError

How = Literal["mean", "steps", "each"]


@dataclass
class _Open:
    """A sequence of which parts are still to come."""

    missing: int
    parts: list[tuple[int, int, Array]]
    """First step, steps, and what was predicted on them."""


class Joiner:
    """Collects what a model gives for the rows of batches, and gives back whole sequences.

    ```python
    joiner = loader.joiner()
    for batch in loader:
        for number, prediction in joiner.add(batch, model(batch.inputs)):
            save(store.ids[number], prediction)
    ```

    Only sequences of which parts are still to come are kept: few of them with shuffle=False.
    """

    def __init__(self, view: View, items: Items, *, how: How) -> None:
        """Prepare.

        Args:
            view: What was loaded from.
            items: The rows of its batches.
            how: "mean": one prediction a row, averaged over a sequence's rows. "steps": one a step, each put to its
                step and averaged where rows overlap; steps in no row are NaN (0 for whole numbers). "each": one a
                row, in the order of the rows.
        """
        if how not in get_args(How):
            raise LowtideError(
                what=f"how={how!r}",
                why="it says how the predictions on parts become those of a sequence",
                fix=f"choose one of {get_args(How)}",
            )
        self._view = view
        self._items = items
        self._how = how
        self._open: dict[int, _Open] = {}

    @property
    def pending(self) -> int:
        """Sequences of which some parts have come, and not all."""
        return len(self._open)

    def add(self, batch: Batch, outputs: Any) -> Iterator[tuple[int, Array]]:  # noqa: ANN401 - tensor or array
        """Take what a model gave for a batch; give the number and the prediction of each sequence that is complete.

        Args:
            batch: The batch.
            outputs: (B, ...) for "mean" and "each"; (B, T, ...) for "steps", or as the batch lies.

        Raises:
            LowtideError: There is not one output a row, or not one a step; or the row has come before.
        """
        rows = _rows_of(batch, outputs, per_step=self._how == "steps")
        index = np.asarray(batch.index)
        wanted = self._items.parts(np.maximum(index, 0)).tolist()
        finished: list[tuple[int, _Open]] = []
        for place, (number, start, length) in enumerate(
            zip(index.tolist(), np.asarray(batch.start).tolist(), np.asarray(batch.lengths).tolist(), strict=True)
        ):
            sequence = self._open.setdefault(number, _Open(wanted[place], []))
            if any(start == begun for begun, _, _ in sequence.parts):
                raise _twice(number, start)
            # A copy: a view would keep the whole batch's outputs.
            part = rows[place, :length] if self._how == "steps" else rows[place]
            sequence.parts.append((start, length, np.array(part)))
            sequence.missing -= 1
            if not sequence.missing:
                finished.append((number, self._open.pop(number)))
        return ((number, self._together(number, sequence.parts)) for number, sequence in finished)

    def _together(self, number: int, found: list[tuple[int, int, Array]]) -> Array:
        parts = sorted(found, key=lambda part: part[0])
        if self._how == "each":
            return np.stack([values for _, _, values in parts])
        if self._how == "mean":
            mean: Array = np.mean([values for _, _, values in parts], axis=0)
            return mean
        first = parts[0][2]
        total = np.zeros((int(self._view.lengths[number]), *first.shape[1:]), first.dtype)
        seen = np.zeros((len(total), *(1 for _ in first.shape[1:])), np.int64)
        for start, length, values in parts:
            total[start : start + length] += values
            seen[start : start + length] += 1
        if not np.issubdtype(total.dtype, np.floating):
            return (total / np.maximum(seen, 1)) if (seen > 1).any() else total
        return np.divide(total, seen, out=np.full_like(total, np.nan), where=seen > 0)


def _rows_of(batch: Batch, outputs: Any, *, per_step: bool) -> Array:  # noqa: ANN401 - tensor or array
    """As a NumPy array, rows first."""
    if hasattr(outputs, "batch_sizes"):
        rnn = load("torch.nn.utils.rnn", wanted_by="predictions as a PackedSequence")
        outputs = rnn.pad_packed_sequence(outputs, batch_first=batch.batch_first, total_length=batch.steps)[0]
    if hasattr(outputs, "detach"):
        outputs = outputs.detach().cpu()
        outputs = outputs.float() if str(outputs.dtype) == "torch.bfloat16" else outputs  # NumPy has no bfloat16
    array = np.asarray(outputs)
    if per_step and not batch.batch_first and array.ndim > 1:
        array = array.swapaxes(0, 1)
    expected = (batch.size, batch.steps) if per_step else (batch.size,)
    if array.shape[: len(expected)] != expected:
        raise LowtideError(
            what=f"outputs of shape {array.shape} for a batch of {batch.size} rows of {batch.steps} steps",
            why="each output is put to the row, or the step, that it belongs to",
            fix="give the model's outputs for this very batch; joiner(how=...) says whether there is one a step",
        )
    return array


def _twice(number: int, start: int) -> LowtideError:
    return LowtideError(
        what=f"sequence {number}: the row from step {start} on came twice before all of its rows had come once",
        why="what is averaged over a sequence's rows would have one of them twice, and another not at all",
        fix="take a new joiner for each time through the data, and go through an epoch from its start",
    )
