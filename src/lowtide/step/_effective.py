"""An effective batch, all that one optimizer step sees, as it is read from what was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lowtide.errors import LowtideError
from lowtide.step._batch import StepBatch
from lowtide.step._given import Given
from lowtide.step._reading import batch_of
from lowtide.step._sequence import Data, leaves, map_leaves

_STEPS = 2
"""Axes of what has time and sequences."""


def read_effective(given: Given, *, batch_first: bool, device: torch.device, may_be_empty: bool) -> StepBatch:
    """A batch of sequences, or of data of a fixed size, whose second axis is then read as if it were time.

    Where nothing tells, the first input with two axes says how many steps there are, and what has as many along time
    has steps; all else is one value a sequence.

    Args:
        given: What was given.
        batch_first: Whether sequences are axis 0 and time axis 1.
        device: Where the model runs.
        may_be_empty: Whether all sequences may have length 0, because other ranks have some that have not.

    Raises:
        LowtideError: The parts do not fit together, or there is nothing to learn from.
    """
    inputs, targets = map_leaves(_viewed, given.inputs), map_leaves(_viewed, given.targets)
    shapes = [_shape_of(leaf) for leaf in leaves(inputs)]
    steps, sequences = given.size or _size(shapes, batch_first=batch_first)
    axes = (sequences, steps) if batch_first else (steps, sequences)
    fixed = given.fixed if given.size else frozenset(at for at, shape in enumerate(shapes) if shape[:_STEPS] != axes)
    for number, shape in enumerate(shapes):
        _check_part(shape, (sequences,) if number in fixed else axes, "inputs")
    if given.lengths is not None and len(fixed) == len(shapes):
        raise LowtideError(
            what=f"lengths is given with inputs of shapes {shapes}",
            why="none of them has an axis of time",
            fix="leave lengths out for data of a fixed size",
        )
    batch = batch_of(
        inputs,
        targets,
        given.lengths,
        given.weight,
        size=(steps, sequences),
        batch_first=batch_first,
        device=device,
        may_be_empty=may_be_empty,
    )
    for leaf in leaves(given.static):
        _check_part(() if leaf is None else _shape_of(leaf), () if leaf is None else (sequences,), "static")
    all_valid = batch.lengths is None or bool((batch.lengths == batch.steps).all())
    return replace(
        batch,
        lengths=None if all_valid else batch.lengths,
        fixed=fixed,
        targets_have_steps=_have_steps(targets, batch, steps) if given.size is None else given.targets_have_steps,
        static=None if given.static is None else map_leaves(_viewed, given.static),
    )


def _viewed(leaf: Any) -> Any:  # noqa: ANN401 - any leaf
    """NumPy's own arrays as tensors of the same memory; mapped files and whatever else as they are."""
    plain = type(leaf) is np.ndarray and leaf.dtype.isnative and leaf.dtype.kind in "biufc" and leaf.flags.writeable
    return torch.from_numpy(leaf) if plain and min(leaf.strides, default=0) >= 0 else leaf


def _shape_of(leaf: Any) -> tuple[int, ...]:  # noqa: ANN401 - any leaf
    shape = getattr(leaf, "shape", None)
    if not isinstance(shape, Sequence) or not shape:
        raise LowtideError(
            what=f"the batch holds a {type(leaf).__name__} that has no axis",
            why="every part of a batch is cut along its sequences",
            fix="give tensors or arrays, (B, ...), and those along time as the model wants them",
        )
    return tuple(int(size) for size in shape)


def _size(shapes: Sequence[tuple[int, ...]], *, batch_first: bool) -> tuple[int, int]:
    """Steps and sequences; one step where nothing has two axes."""
    for shape in shapes:
        if len(shape) >= _STEPS:
            return (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    return 1, (shapes[0][0] if shapes else 0)


def _check_part(shape: tuple[int, ...], axes: tuple[int, ...], name: str) -> None:
    if shape[: len(axes)] != axes:
        raise LowtideError(
            what=f"the {name} hold a part of shape {shape} where {axes} is how it should begin",
            why="all parts of a batch are of the same sequences, and those along time of the same steps",
            fix="give every part as many sequences; pass batch_first=True for (B, T, ...), False for (T, B, ...)",
        )


def _have_steps(targets: Data, batch: StepBatch, padded_steps: int) -> bool:
    shapes = [_shape_of(leaf)[:_STEPS] for leaf in leaves(targets)]
    wanted = {
        (batch.sequences, steps) if batch.batch_first else (steps, batch.sequences)
        for steps in (padded_steps, batch.steps)
    }
    return all(shape in wanted for shape in shapes)
