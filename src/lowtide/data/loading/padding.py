"""Sequences that lie one behind the other, spread out into one padded array."""

from __future__ import annotations

import numpy as np

from lowtide.data.disk.step_tables import StepTables, clear_padding
from lowtide.data.fields import Array
from lowtide.data.loading.order import Ints


def pad(out: Array, values: Array, offsets: Ints, *, batch_first: bool) -> None:
    """Fill all of `out`: the sequences' steps, and zeros behind them.

    Args:
        out: (B, T, ...), or (T, B, ...) if not batch_first; its type decides what values become.
        values: (sum of lengths, ...).
        offsets: B + 1 places: where each sequence begins, and the end.
        batch_first: Which axis of `out` is which.
    """
    lengths = np.diff(offsets)
    tables = StepTables(1, out.dtype, out.shape[2:])
    tables.set(0, np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(values, out.dtype))
    rows, zeros = np.arange(len(lengths)), np.zeros_like(lengths)
    wrong = tables.copy(np.stack([zeros, rows, zeros, lengths, rows, zeros], axis=1), out, batch_first=batch_first)
    assert wrong is None
    clear_padding(out, lengths, batch_first=batch_first)
