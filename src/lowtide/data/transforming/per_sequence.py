"""Every sequence to mean 0 and standard deviation 1 by numbers of its own.

What stands for a sequence is what a batch holds of it: a window or a crop is scaled by its own steps, so nothing
outside of it is seen, whatever the split. Kim et al. 2022 ("Reversible Instance Normalization") show what that gains
where levels drift; their way back, by the same numbers, is `inverted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Array
from lowtide.data.transforming.transform import Offsets, Unlearnt

_CONSTANT = 10.0
"""Roundings of the mean up to which a deviation is taken for one, and the sequence for constant."""
_NUMBERS = 1 << 15
"""Numbers that are in memory as float64 at once: they stay in the cache."""


class PerSequence(Unlearnt):
    """(x - mean) / deviation with the mean and deviation of each sequence; where constant, x - mean."""

    kind = "per_sequence"
    per_sequence = True

    def numbers(self, values: Array, offsets: Offsets) -> NDArray[np.float64]:
        """The mean and deviation of every column of every sequence, (sequences, 2, columns); 0 and 1 where not chosen.

        A sequence without steps has 0 and 1.
        """
        width = len(self.columns)
        work = values.reshape(len(values), width)
        found = np.empty((len(offsets) - 1, 2, width))
        for first, last in _groups(offsets, max(1, _NUMBERS // width)):
            steps = work[offsets[first] : offsets[last]]
            found[first:last, 0], found[first:last, 1] = _moments(steps, np.diff(offsets[first : last + 1]))
        others = [place for place, name in enumerate(self.columns) if name not in self.chosen]
        found[:, 0, others], found[:, 1, others] = 0, 1
        return found

    def inverted(self, values: Array, columns: tuple[str, ...], numbers: Array | None) -> Array:
        """Y * deviation + mean, sequence by sequence."""
        assert numbers is not None
        at = [self.columns.index(name) for name in columns]
        between = (1,) * (values.ndim - 2)  # the axes of steps, if any
        mean, deviation = (
            numbers[:, part][:, at].astype(values.dtype).reshape(len(values), *between, len(at)) for part in (0, 1)
        )
        back: Array = values * deviation + mean
        return back

    def _transformed(self, work: Array, offsets: Offsets | None) -> Array:
        assert offsets is not None
        found = self.numbers(work, offsets)
        means, factors = found[:, 0].astype(work.dtype), (1 / found[:, 1]).astype(work.dtype)
        for first, last in _groups(offsets, max(1, _NUMBERS // len(self.columns))):
            steps, counts = work[offsets[first] : offsets[last]], np.diff(offsets[first : last + 1])
            steps -= means[first] if last == first + 1 else np.repeat(means[first:last], counts, axis=0)
            steps *= factors[first] if last == first + 1 else np.repeat(factors[first:last], counts, axis=0)
        return work


def _groups(offsets: Offsets, most: int) -> Iterator[tuple[int, int]]:
    """Runs of sequences that have at most so many steps together, or one sequence that has more."""
    first = 0
    while first + 1 < len(offsets):
        last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _moments(steps: Array, counts: Offsets) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of sequences one after the other, in float64; 0 and 1 where there are no steps."""
    some = counts > 0
    present, width = counts[some], steps.shape[1]
    mean, deviation = np.zeros((len(counts), width)), np.ones((len(counts), width))
    if len(present):
        found, squares = _moments_of_one(steps) if len(present) == 1 else _moments_of_many(steps, present)
        # A deviation within the rounding of the numbers themselves is none.
        noise = _CONSTANT * np.finfo(steps.dtype).eps * np.abs(found)
        spread = np.sqrt(squares / present[:, np.newaxis])
        mean[some], deviation[some] = found, np.where(spread > noise, spread, 1.0)
    return mean, deviation


def _moments_of_many(steps: Array, counts: Offsets) -> tuple[Array, Array]:
    """Mean, and sum of squares around it, of sequences that are short together."""
    starts = np.cumsum(counts) - counts
    wide = steps.astype(np.float64)
    mean = np.add.reduceat(wide, starts, axis=0) / counts[:, np.newaxis]
    wide -= np.repeat(mean, counts, axis=0)
    np.multiply(wide, wide, out=wide)
    return mean, np.add.reduceat(wide, starts, axis=0)


def _moments_of_one(steps: Array) -> tuple[Array, Array]:
    """The same of one sequence that may be long."""
    rows = max(1, _NUMBERS // steps.shape[1])
    blocks = [steps[first : first + rows] for first in range(0, len(steps), rows)]
    mean = sum(np.einsum("ij->j", block.astype(np.float64)) for block in blocks) / len(steps)
    squares: Any = 0.0
    for block in blocks:
        apart = block - mean
        squares = squares + np.einsum("ij,ij->j", apart, apart)
    return mean[np.newaxis], squares[np.newaxis]
