"""Batches of any size after the likeness of one that was seen: what probes run on.

Rows and steps of a sample are repeated as often as it takes, so tokens stay in the vocabulary and numbers look as they
do. Only as much of the sample is kept as shows what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lowtide.data.batch import Batch
from lowtide.errors import LowtideError
from lowtide.step._sequence import leaves, map_leaves

_KEPT_ROWS = 64
_KEPT_STEPS = 256
_FEWEST = 2
"""Parts of a batch: inputs and targets."""
_PARTS = ("inputs", "targets", "lengths", "weight")


@dataclass(frozen=True)
class Pattern:
    """What a batch looks like."""

    parts: Mapping[str, Any]
    """Inputs, targets and weight of the sample, and static values where there are any."""
    rows: int
    steps: int
    """Of the sample that is kept."""
    full_rows: int
    """Of the sample as it was given."""
    full_steps: int
    batch_first: bool
    has_lengths: bool
    """Whether sequences of a batch may differ in length."""

    def make(self, rows: int, steps: int) -> dict[str, Any]:
        """A batch of so many sequences, padded to so many steps: full but for one step of most of them."""
        made: dict[str, Any] = {name: self._repeated(part, rows, steps) for name, part in self.parts.items()}
        if self.has_lengths:
            lengths = torch.full((rows,), max(1, steps - 1))
            lengths[-1] = steps  # not in order, as in data: rows are picked rather than viewed
            made["lengths"] = lengths
        return made

    def bytes(self, rows: int, steps: int) -> int:
        """Bytes of a batch of this size."""
        found = 8 * rows if self.has_lengths else 0
        for leaf in leaves(self.parts):
            per_row, per_step = self._scales(leaf)
            size = leaf.element_size() * leaf.numel()
            if per_row:
                size = size // self.rows * rows
            found += size // self.steps * steps if per_step else size
        return found

    def _repeated(self, part: Any, rows: int, steps: int) -> Any:  # noqa: ANN401 - any structure
        def repeat(leaf: Tensor) -> Tensor:
            per_row, per_step = self._scales(leaf)
            if per_row:
                leaf = _taken(leaf, 0 if self.batch_first or not per_step else 1, rows)
            return _taken(leaf, 1 if self.batch_first else 0, steps) if per_step else leaf

        return map_leaves(repeat, part)

    def _scales(self, leaf: Tensor) -> tuple[bool, bool]:
        """Whether a leaf has an axis of sequences, and one of steps."""
        row_axis, time_axis = (0, 1) if self.batch_first else (1, 0)
        if leaf.dim() > 1 and (leaf.shape[row_axis], leaf.shape[time_axis]) == (self.rows, self.steps):
            return True, True
        return leaf.dim() > 0 and leaf.shape[0] == self.rows, False


def read_pattern(batch: Any, *, batch_first: bool) -> Pattern:  # noqa: ANN401 - as a step takes it
    """What a batch looks like.

    Args:
        batch: A `Batch`, (inputs, targets[, lengths[, weight]]), or a mapping of these names.
        batch_first: Whether sequences are axis 0 and steps axis 1, where the batch does not say.

    Raises:
        LowtideError: It is no batch.
    """
    parts = parts_of(batch)
    if isinstance(batch, Batch):
        batch_first = batch.batch_first
    has_lengths = parts.pop("lengths", None) is not None
    tensors = {name: map_leaves(_as_tensor, part) for name, part in parts.items() if part is not None}
    first = next(iter(leaves(tensors.get("inputs"))), None)
    if first is None or first.dim() < 2:  # noqa: PLR2004 - sequences and steps, or sequences and features
        shape = None if first is None else tuple(first.shape)
        raise LowtideError(
            what=f"the inputs of the sample have shape {shape}",
            why="a plan is made for batches: an axis of sequences, and one of steps or features",
            fix="give a batch as training sees it: inputs of (B, T, ...) or (T, B, ...)",
        )
    rows, steps = (first.shape[0], first.shape[1]) if batch_first else (first.shape[1], first.shape[0])
    if rows == 0 or steps == 0:
        raise LowtideError(
            what=f"the sample holds {rows} sequences of {steps} steps",
            why="nothing can be learnt from it about what training takes",
            fix="give a batch with at least one sequence and one step",
        )
    whole = Pattern(tensors, rows, steps, rows, steps, batch_first, has_lengths)
    kept = (min(rows, _KEPT_ROWS), min(steps, _KEPT_STEPS))
    cut = {name: whole._repeated(part, *kept) for name, part in tensors.items()}  # noqa: SLF001 - of the same class
    return replace(whole, parts=cut, rows=kept[0], steps=kept[1])


def parts_of(batch: Any) -> dict[str, Any]:  # noqa: ANN401 - as a step takes it
    """Inputs, targets, lengths, weight and static values of a batch, by name.

    Raises:
        LowtideError: It is no batch.
    """
    if isinstance(batch, Batch):
        return {name: getattr(batch, name) for name in (*_PARTS, "static")}
    if isinstance(batch, Mapping) and {"inputs", "targets"} <= set(batch) <= {*_PARTS, "static"}:
        return dict(batch)
    if isinstance(batch, Sequence) and not isinstance(batch, str) and _FEWEST <= len(batch) <= len(_PARTS):
        return dict(zip(_PARTS, batch, strict=False))
    raise LowtideError(
        what=f"a {type(batch).__name__} was given as a batch",
        why="a plan wants to know inputs and targets, and lengths where sequences differ",
        fix="give a lowtide.data.Batch, (inputs, targets), (inputs, targets, lengths), or a mapping of these names",
    )


def _taken(leaf: Tensor, axis: int, count: int) -> Tensor:
    size = leaf.shape[axis]
    if count <= size:
        return leaf.narrow(axis, 0, count).clone()
    return leaf.index_select(axis, torch.arange(count, device=leaf.device) % size)


def _as_tensor(leaf: Any) -> Tensor:  # noqa: ANN401 - a tensor or an array
    if hasattr(leaf, "batch_sizes"):
        raise LowtideError(
            what="the sample holds a PackedSequence",
            why="micro-batches are cut out of padded batches; lean layers skip padding all the same",
            fix="give padded inputs and lengths, (inputs, targets, lengths)",
        )
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else torch.from_numpy(np.array(leaf))
