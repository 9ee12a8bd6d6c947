"""Batches of any size after the likeness of one that was seen: what probes run on.

Rows and steps of a sample are repeated as often as it takes, so tokens stay in the vocabulary and numbers look as they
do. Only as much of the sample is kept as shows what there is. What has sequences and steps is made out once, in the way
that a step makes it out: as a `Batch` tells it, else by the shapes.
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
from lowtide.step._sequence import leaves, map_leaves, map_numbered

_KEPT_ROWS = 64
_KEPT_STEPS = 256
_FEWEST = 2
"""Parts of a batch: inputs and targets."""
_AXES = 2
"""Of what has sequences and steps."""
_PARTS = ("inputs", "targets", "lengths", "weight")


@dataclass(frozen=True)
class Axes:
    """What a part of a batch has besides values."""

    sequences: int | None
    """Which of its axes counts sequences; None: none does."""
    steps: int | None

    def sizes(self, rows: int, steps: int) -> dict[int, int]:
        """The size that each of them has in a batch of so many sequences and steps."""
        found = {self.sequences: rows, self.steps: steps}
        return {axis: size for axis, size in found.items() if axis is not None}


@dataclass(frozen=True)
class Pattern:
    """What a batch looks like."""

    parts: Mapping[str, Any]
    """Inputs, targets and weight of the sample, and static values where there are any."""
    axes: tuple[Axes, ...]
    """Of each tensor of the parts, in order."""
    full_rows: int
    """Of the sample as it was given."""
    full_steps: int
    batch_first: bool
    has_lengths: bool
    """Whether sequences of a batch may differ in length."""
    batch: Batch | None = None
    """The sample without its arrays, where it was a `Batch`: what it tells of itself."""

    def make(self, rows: int, steps: int) -> Batch | dict[str, Any]:
        """A batch of so many sequences, padded to so many steps: full but for one step of most of them."""
        made: dict[str, Any] = self._sized(rows, steps)
        if self.has_lengths:
            lengths = torch.full((rows,), max(1, steps - 1))
            lengths[-1] = steps  # not in order, as in data: rows are picked rather than viewed
            made["lengths"] = lengths
        if self.batch is None:
            return made
        numbers = torch.arange(rows)
        told = self.batch.steps and steps
        return replace(self.batch, **made, index=numbers, start=torch.zeros_like(numbers), steps=told)

    def bytes(self, rows: int, steps: int) -> int:
        """Bytes of a batch of this size."""
        numbers = self.has_lengths + (0 if self.batch is None else 2)
        found = 8 * rows * numbers
        for leaf, axes in zip(leaves(self.parts), self.axes, strict=True):
            size = leaf.element_size() * leaf.numel()
            for axis, wanted in axes.sizes(rows, steps).items():
                size = size // leaf.shape[axis] * wanted
            found += size
        return found

    @property
    def widths(self) -> list[object]:
        """Shapes without sequences and steps, and types: what two patterns differ in whatever the size."""
        return [
            (
                axes,
                [size for axis, size in enumerate(leaf.shape) if axis not in (axes.sequences, axes.steps)],
                str(leaf.dtype),
            )
            for leaf, axes in zip(leaves(self.parts), self.axes, strict=True)
        ]

    def _sized(self, rows: int, steps: int) -> dict[str, Any]:
        def sized(number: int, leaf: Tensor) -> Tensor:
            return _tiled(leaf, self.axes[number].sizes(rows, steps))

        made: dict[str, Any] = map_numbered(sized, self.parts)
        return made


def read_pattern(batch: Any, *, batch_first: bool) -> Pattern:  # noqa: ANN401 - as a step takes it
    """What a batch looks like.

    Args:
        batch: A `Batch`, (inputs, targets[, lengths[, weight]]), or a mapping of these names.
        batch_first: Whether sequences are axis 0 and steps axis 1, where the batch does not say.

    Raises:
        LowtideError: It is no batch.
    """
    given = parts_of(batch)
    if isinstance(batch, Batch):
        batch_first = batch.batch_first
    lengths = given.pop("lengths", None)
    parts = {name: map_leaves(_as_tensor, part) for name, part in given.items() if part is not None}
    rows, steps = _size_of(batch, leaves(parts["inputs"]), batch_first=batch_first)
    if rows == 0 or steps == 0:
        raise LowtideError(
            what=f"the sample holds {rows} sequences of {steps} steps",
            why="nothing can be learnt from it about what training takes",
            fix="give a batch with at least one sequence and one step",
        )
    longest = steps if lengths is None else int(max(lengths))
    axes = _axes_of(batch, parts, rows, {steps, longest}, batch_first=batch_first)
    whole = Pattern(parts, axes, rows, steps, batch_first, lengths is not None, _shell(batch))
    return replace(whole, parts=whole._sized(min(rows, _KEPT_ROWS), min(steps, _KEPT_STEPS)))  # noqa: SLF001 - its own


def parts_of(batch: Any) -> dict[str, Any]:  # noqa: ANN401 - as a step takes it
    """Inputs, targets, lengths, weight and static values of a batch, by name.

    Raises:
        LowtideError: It is no batch, or rows go on from the batch before.
    """
    if isinstance(batch, Batch):
        if batch.begins is not None:
            raise LowtideError(
                what="the rows of the sample go on from those of the batch before",
                why="a plan is for whole sequences: lanes are truncated back-propagation, with chunks of their own",
                fix="use StreamStep(..., stateful=True) with lanes, or give batches of whole sequences",
            )
        found = {name: getattr(batch, name) for name in (*_PARTS, "static")}
    elif isinstance(batch, Mapping) and {"inputs", "targets"} <= set(batch) <= set(_PARTS):
        found = dict(batch)
    elif isinstance(batch, (tuple, list)) and _FEWEST <= len(batch) <= len(_PARTS) and not _is_packed(batch):
        found = dict(zip(_PARTS, batch, strict=False))
    else:
        raise LowtideError(
            what=f"a {type(batch).__name__} was given as a batch",
            why="a plan wants to know inputs and targets, and lengths where sequences differ",
            fix="give a lowtide.data.Batch, (inputs, targets), (inputs, targets, lengths), or a mapping of these names",
        )
    for name in ("inputs", "targets"):
        there = leaves(found[name])
        if not there or any(leaf is None for leaf in there):
            raise LowtideError(
                what=f"the sample has no {name}",
                why="the loss compares what the model makes of the inputs with the targets",
                fix="give both; a model that learns its own inputs takes them as targets",
            )
    return found


def _size_of(batch: Any, inputs: Sequence[Tensor], *, batch_first: bool) -> tuple[int, int]:  # noqa: ANN401 - as given
    """Sequences and steps; one step where no input has two axes."""
    if isinstance(batch, Batch) and _tells(batch):
        return batch.size, batch.steps
    for leaf in inputs:
        if leaf.dim() >= _AXES:
            return (leaf.shape[0], leaf.shape[1]) if batch_first else (leaf.shape[1], leaf.shape[0])
    if inputs[0].dim() == 0:
        raise LowtideError(
            what="the inputs of the sample have shape ()",
            why="a plan is made for batches: an axis of sequences, and one of steps or features",
            fix="give a batch as training sees it: inputs of (B, T, ...) or (T, B, ...)",
        )
    return inputs[0].shape[0], 1


def _axes_of(
    batch: Any,  # noqa: ANN401 - as given
    parts: Mapping[str, Any],
    rows: int,
    steps: set[int],
    *,
    batch_first: bool,
) -> tuple[Axes, ...]:
    """What every tensor of the parts has, in order."""
    both, sequences, none = Axes(*((0, 1) if batch_first else (1, 0))), Axes(0, None), Axes(None, None)
    padded = {(rows, one) if batch_first else (one, rows) for one in steps}

    def of(name: str, leaf: Tensor) -> Axes:
        if leaf.dim() == 0:
            return none
        if name == "static":
            has_steps = False
        elif name.startswith("weight"):
            has_steps = leaf.dim() > 1
        elif isinstance(batch, Batch) and _tells(batch):
            has_steps = name in batch.per_step
        else:
            has_steps = tuple(leaf.shape[:_AXES]) in padded
        if has_steps:
            return both
        return sequences if leaf.shape[0] == rows else none

    return tuple(of(name, leaf) for part, value in parts.items() for name, leaf in _named(part, value))


def _named(part: str, value: Any) -> list[tuple[str, Tensor]]:  # noqa: ANN401 - any structure
    """The tensors of a part in order, by the names that a `Batch` has for them."""
    if isinstance(value, Mapping):
        return [(f"{part}/{key}", leaf) for key, inner in value.items() for leaf in leaves(inner)]
    return [(part, leaf) for leaf in leaves(value)]


def _tells(batch: Batch) -> bool:
    """Whether a batch says which of its parts have steps."""
    return batch.steps > 0 and bool(batch.per_step)


def _shell(batch: Any) -> Batch | None:  # noqa: ANN401 - as given
    if not isinstance(batch, Batch):
        return None
    return replace(batch, inputs=None, targets=None, weight=None, static=None, lengths=None, index=None, start=None)


def _tiled(leaf: Tensor, sizes: Mapping[int, int]) -> Tensor:
    """A tensor of other sizes along some axes, repeated or cut; nothing else is made meanwhile."""
    shape = [sizes.get(axis, size) for axis, size in enumerate(leaf.shape)]
    made = leaf.new_empty(shape)
    common = tuple(slice(min(*both)) for both in zip(leaf.shape, shape, strict=True))
    made[common] = leaf[common]
    filled = [min(*both) for both in zip(leaf.shape, shape, strict=True)]
    for axis, size in sizes.items():
        there = made[tuple(map(slice, filled))]
        while filled[axis] < size:
            count = min(filled[axis], size - filled[axis])
            box = [slice(end) for end in filled]
            box[axis] = slice(filled[axis], filled[axis] + count)
            made[tuple(box)] = there.narrow(axis, 0, count)
            filled[axis] += count
            there = made[tuple(map(slice, filled))]
    return made


def _as_tensor(leaf: Any) -> Tensor:  # noqa: ANN401 - a tensor or an array
    if _is_packed(leaf):
        raise LowtideError(
            what="the sample holds a PackedSequence",
            why="micro-batches are cut out of padded batches; lean layers skip padding all the same",
            fix="give padded inputs and lengths, (inputs, targets, lengths)",
        )
    if isinstance(leaf, Tensor):
        return leaf.detach().cpu()
    try:
        return torch.from_numpy(np.array(leaf))
    except TypeError as error:
        raise LowtideError(
            what=f"the sample holds a {type(leaf).__name__}: {error}",
            why="batches of other sizes are made after its likeness",
            fix="give tensors or arrays of numbers",
        ) from error


def _is_packed(thing: object) -> bool:
    return hasattr(thing, "batch_sizes")
