"""Some sequences of data that lie along time: a view where they are neighbours, else picked when a part is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class PickedRows:
    """Sequences of a leaf that are no view of it. Cut along time like the leaf, it loads these sequences alone."""

    def __init__(self, leaf: Any, rows: Tensor, axis: int) -> None:  # noqa: ANN401 - any leaf
        """Load nothing yet.

        Args:
            leaf: Anything with a shape that can be sliced along time.
            rows: (b,) int64 on the CPU: which sequences.
            axis: Where the leaf's sequences lie.
        """
        self._leaf = leaf
        self._rows = rows
        self._axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all of it."""
        shape = tuple(self._leaf.shape)
        return (*shape[: self._axis], len(self._rows), *shape[self._axis + 1 :])

    @property
    def dtype(self) -> object:
        """The leaf's."""
        return self._leaf.dtype

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Tensor:
        """The sequences in a span of time.

        Args:
            key: Slices; that of the sequences takes all of them.
        """
        keys = key if isinstance(key, tuple) else (key,)
        assert len(keys) <= self._axis or keys[self._axis] == slice(None)
        part = self._leaf[key]
        if isinstance(part, Tensor):
            return part.index_select(self._axis, self._rows.to(part.device))
        array = np.take(np.asarray(part), self._rows.numpy(), self._axis)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def picked(leaf: Any, rows: slice | Tensor, *, axis: int) -> Any:  # noqa: ANN401 - any leaf
    """Some sequences of a leaf; nothing is loaded or copied yet.

    Args:
        leaf: A tensor, an array, or anything with a shape that can be sliced along time.
        rows: Which: a slice, or (b,) int64 on the CPU.
        axis: Where the leaf's sequences lie.
    """
    if isinstance(rows, slice):
        if isinstance(leaf, (Tensor, np.ndarray)):
            return leaf[(slice(None),) * axis + (rows,)]
        rows = torch.arange(leaf.shape[axis])[rows]
    return PickedRows(leaf, rows, axis)
