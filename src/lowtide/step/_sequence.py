"""Data along time, cut into chunks: tensors, arrays, mapped files, or structures of them.

Only what a chunk covers is ever loaded. Time is axis 1 where batches come first, else axis 0.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lowtide.errors import LowtideError

Data = Any
"""A tensor, anything with a shape that can be sliced along time, or a structure of these."""

CONTAINERS = "tuples, named tuples, lists, dictionaries and dataclasses"
"""What a structure may be made of."""


def map_leaves(act: Callable[[Any], Any], data: Data) -> Data:
    """The same structure with `act` applied to every leaf."""
    if isinstance(data, PackedSequence):
        return act(data)  # a named tuple too, but its parts mean nothing alone
    if is_dataclass(data) and not isinstance(data, type):
        twin = copy.copy(data)
        for field in fields(data):
            object.__setattr__(twin, field.name, map_leaves(act, getattr(data, field.name)))
        return twin
    if isinstance(data, Mapping):
        return {name: map_leaves(act, part) for name, part in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(map_leaves(act, part) for part in data))
    if isinstance(data, (tuple, list)):
        return type(data)(map_leaves(act, part) for part in data)
    return act(data)


def leaves(data: Data) -> list[Any]:
    """Every leaf, in order."""
    found: list[Any] = []
    map_leaves(found.append, data)
    return found


def map_numbered(act: Callable[[int, Any], Any], data: Data) -> Data:
    """The same structure with `act` applied to every leaf and its number."""
    numbers = itertools.count()
    return map_leaves(lambda leaf: act(next(numbers), leaf), data)


def size_of(data: Data, *, batch_first: bool, name: str) -> tuple[int, int]:
    """Steps and sequences, the same for every leaf.

    Raises:
        LowtideError: A leaf has no shape or fewer than two axes, or leaves differ, or nothing is there.
    """
    sizes = {_leaf_size(leaf, batch_first=batch_first, name=name) for leaf in leaves(data)}
    if len(sizes) != 1:
        raise LowtideError(
            what=f"the {name} hold parts of (steps, sequences) {sorted(sizes)}",
            why="all parts are cut into the same chunks of time",
            fix="give every part the same number of steps and of sequences, at least one part in all",
        )
    return sizes.pop()


def _leaf_size(leaf: Any, *, batch_first: bool, name: str) -> tuple[int, int]:  # noqa: ANN401 - any leaf
    shape = getattr(leaf, "shape", None)
    if not isinstance(shape, Sequence) or len(shape) < 2:  # noqa: PLR2004 - time and batch
        found = f"a {type(leaf).__name__}" + (f" of shape {tuple(shape)}" if isinstance(shape, Sequence) else "")
        raise LowtideError(
            what=f"the {name} hold {found}",
            why="every part needs an axis of time and one of sequences, in the model's order",
            fix="give tensors or arrays, (T, B, ...) or (B, T, ...); x[:, None] makes a batch of one sequence",
        )
    steps, batch = (int(shape[1]), int(shape[0])) if batch_first else (int(shape[0]), int(shape[1]))
    return steps, batch


def cut(
    data: Data, start: int, stop: int, *, batch_first: bool, device: torch.device, fixed: Collection[int] = ()
) -> Data:
    """Load steps [start, stop) onto a device, and the leaves of the numbers `fixed`, which have no time, whole."""

    def part(number: int, leaf: Data) -> Tensor:
        if number in fixed:
            return _all_of(leaf, device)
        return load(leaf[:, start:stop] if batch_first else leaf[start:stop], device)

    return map_numbered(part, data)


def whole(data: Data, *, device: torch.device) -> Data:
    """Load everything onto a device."""
    return map_leaves(lambda leaf: _all_of(leaf, device), data)


def load(part: Any, device: torch.device) -> Tensor:  # noqa: ANN401 - any leaf
    """A tensor on a device, of what was sliced out of a leaf."""
    if isinstance(part, Tensor):
        # What was made in inference mode can take no part in autograd.
        return (part.clone() if part.is_inference() else part).to(device, non_blocking=True)
    # A copy: what is mapped may be read-only or of another byte order, and its pages shall not stay in use.
    array = np.asarray(part)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="))).to(device)


def _all_of(leaf: Data, device: torch.device) -> Tensor:
    return load(leaf if isinstance(leaf, Tensor) else leaf[:], device)
