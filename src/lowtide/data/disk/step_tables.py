"""Steps copied by the kernel: out of tables that lie in memory or mapped files, into one run or a padded array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide import kernels
from lowtide.data.fields import Array

Counts = NDArray[np.int64]

_UNKNOWN = -1
"""Rows of a table that is not set yet."""


class StepTables:
    """Tables of one field: rows of steps one behind the other, in any number of places."""

    def __init__(self, count: int, dtype: np.dtype[Any], step_shape: tuple[int, ...]) -> None:
        """No table is set yet; all will hold steps of this type and shape."""
        self._dtype = dtype
        self._step_shape = step_shape
        # As the kernel's StepTable has them: addresses of offsets and values, rows, steps.
        self._entries: Counts = np.zeros((count, 4), dtype=np.int64)
        self._entries[:, 2] = _UNKNOWN
        self._kept: dict[int, tuple[Counts, Array]] = {}

    def missing(self, tables: Counts) -> list[int]:
        """Those of the tables that are not set."""
        unknown = self._entries[tables, 2] == _UNKNOWN
        return np.unique(tables[unknown]).tolist() if unknown.any() else []

    def set(self, table: int, offsets: Counts, values: Array) -> None:
        """Say where a table lies. Said twice, the first holds: another thread may be copying from there.

        Args:
            table: Its number.
            offsets: (rows + 1,): where each row's steps begin; they need not be right.
            values: (steps, ...), in order.
        """
        assert offsets.dtype == np.int64
        assert offsets.flags.c_contiguous
        assert values.flags.c_contiguous
        assert (values.dtype, values.shape[1:]) == (self._dtype, self._step_shape)
        offsets, values = self._kept.setdefault(table, (offsets, values))
        self._entries[table] = (offsets.ctypes.data, values.ctypes.data, len(offsets) - 1, len(values))

    def copy(self, spans: Counts, out: Array, *, batch_first: bool = True) -> int | None:
        """Copy steps to their places.

        Args:
            spans: (spans, 6): table, row, first step, step behind the last; row and first step in `out`.
            out: (rows, steps, ...), or (steps, rows, ...) if not batch_first, of the tables' type; each step in order.
            batch_first: Which axis of `out` is which.

        Returns:
            None; or the number of a span that lies outside of its table or of `out`, and then nothing is copied.
        """
        assert (out.dtype, out.shape[2:]) == (self._dtype, self._step_shape)
        spans = np.ascontiguousarray(spans, dtype=np.int64)
        wrong = kernels.copy_steps(
            self._entries.ctypes.data, len(self._entries), spans.ctypes.data, len(spans), _described(out, batch_first)
        )
        return None if wrong < 0 else wrong


def clear_padding(out: Array, lengths: Counts, *, batch_first: bool) -> None:
    """Put zeros behind the first steps of each row.

    Args:
        out: (rows, steps, ...), or (steps, rows, ...) if not batch_first; each step in order.
        lengths: The steps of each row that stay.
        batch_first: Which axis of `out` is which.
    """
    lengths = np.ascontiguousarray(lengths, dtype=np.int64)
    assert len(lengths) == out.shape[0 if batch_first else 1]
    kernels.clear_padding(lengths.ctypes.data, _described(out, batch_first))


def _described(out: Array, batch_first: bool) -> kernels.PaddedSteps:
    rows, steps = (0, 1) if batch_first else (1, 0)
    described = kernels.PaddedSteps()
    described.base = out.ctypes.data
    described.rows, described.steps = out.shape[rows], out.shape[steps]
    described.row_stride, described.step_stride = out.strides[rows], out.strides[steps]
    described.step_bytes = out.itemsize * int(np.prod(out.shape[2:], dtype=np.int64))
    assert out[:1, :1].flags.c_contiguous
    assert out.flags.writeable
    return described
