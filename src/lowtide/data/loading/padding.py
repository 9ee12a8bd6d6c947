"""Sequences that lie one behind the other, spread out into one padded array."""

from __future__ import annotations

import numpy as np

from lowtide.data.fields import Array
from lowtide.data.loading.order import Ints

_FEW_STEPS = 48
"""Mean length up to which one scatter of all steps is faster than one copy a sequence."""


def pad(out: Array, values: Array, offsets: Ints, *, batch_first: bool) -> None:
    """Fill all of `out`: the sequences' steps, and zeros behind them.

    Args:
        out: (B, T, ...), or (T, B, ...) if not batch_first; its type decides what values become.
        values: (sum of lengths, ...).
        offsets: B + 1 places: where each sequence begins, and the end.
        batch_first: Which axis of `out` is which.
    """
    batch = len(offsets) - 1
    if batch_first and len(values) > _FEW_STEPS * batch:
        _copy_rows(out, values, offsets)
    else:
        _scatter(out, values, offsets, batch_first=batch_first)


def _copy_rows(out: Array, values: Array, offsets: Ints) -> None:
    bounds = offsets.tolist()
    for row, start, stop in zip(out, bounds[:-1], bounds[1:], strict=True):
        row[: stop - start] = values[start:stop]
        row[stop - start :] = 0


def _scatter(out: Array, values: Array, offsets: Ints, *, batch_first: bool) -> None:
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(values)) - np.repeat(offsets[:-1], lengths)
    out[...] = 0
    out[(row, step) if batch_first else (step, row)] = values
