"""Steps come to their places, whatever the strides; a span that lies outside is told, and then nothing is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowtide import kernels

Ints = NDArray[np.int64]

STEP_BYTES = [1, 2, 3, 4, 8, 12, 16, 32, 64, 100]


def described(out: NDArray[np.uint8], *, batch_first: bool) -> kernels.PaddedSteps:
    rows, steps = (0, 1) if batch_first else (1, 0)
    padded = kernels.PaddedSteps()
    padded.base = out.ctypes.data
    padded.rows, padded.steps, padded.step_bytes = out.shape[rows], out.shape[steps], out.shape[2]
    padded.row_stride, padded.step_stride = out.strides[rows], out.strides[steps]
    return padded


class Table:
    """One table of rows of these lengths, and its description."""

    def __init__(self, lengths: list[int], step_bytes: int, *, unaligned: bool = False) -> None:
        """Offsets may begin at an odd address."""
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        memory = np.zeros(bounds.nbytes + 1, np.uint8)
        self.offsets = memory[unaligned : unaligned + bounds.nbytes]
        self.offsets[:] = bounds.view(np.uint8)
        self._memory = memory
        self.values = np.random.default_rng(0).integers(1, 256, (bounds[-1], step_bytes), dtype=np.uint8)
        self.entry = [self.offsets.ctypes.data, self.values.ctypes.data, len(lengths), len(self.values)]
        self.bounds = bounds

    def steps(self, row: int, start: int, stop: int) -> NDArray[np.uint8]:
        """Some steps of one row."""
        first = self.bounds[row]
        return self.values[first + start : first + stop]


def copy(tables: list[Table], spans: list[list[int]], out: NDArray[np.uint8], *, batch_first: bool = True) -> int:
    entries = np.array([table.entry for table in tables], np.int64)
    numbers = np.array(spans, np.int64).reshape(-1, 6)
    told = described(out, batch_first=batch_first)
    return kernels.copy_steps(entries.ctypes.data, len(entries), numbers.ctypes.data, len(numbers), told)


@given(
    data=st.data(),
    step_bytes=st.sampled_from(STEP_BYTES),
    lengths=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=3),
    batch_first=st.booleans(),
    unaligned=st.booleans(),
)
def test_steps_come_to_their_places_and_zeros_behind(
    data: st.DataObject, step_bytes: int, lengths: list[list[int]], batch_first: bool, unaligned: bool
) -> None:
    tables = [Table(rows, step_bytes, unaligned=unaligned) for rows in lengths]
    spans, expected = [], []
    for out_row in range(data.draw(st.integers(0, 6), label="rows")):
        number = data.draw(st.integers(0, len(tables) - 1))
        row = data.draw(st.integers(0, len(lengths[number]) - 1))
        start = data.draw(st.integers(0, lengths[number][row]))
        stop = data.draw(st.integers(start, lengths[number][row]))
        shift = data.draw(st.integers(0, 2))
        spans.append([number, row, start, stop, out_row, shift])
        expected.append((shift, tables[number].steps(row, start, stop)))
    steps = 12
    shape = (len(spans), steps) if batch_first else (steps, len(spans))
    guarded = np.full((*shape, step_bytes + 1), 255, np.uint8)
    out = guarded[..., :step_bytes]  # neither rows nor steps lie one behind the other
    if data.draw(st.booleans(), label="in order"):
        out = np.full((*shape, step_bytes), 255, np.uint8)
    assert copy(tables, spans, out, batch_first=batch_first) == -1
    ends = np.array([shift + len(values) for shift, values in expected], np.int64)
    kernels.clear_padding(ends.ctypes.data, described(out, batch_first=batch_first))
    rows = out if batch_first else out.swapaxes(0, 1)
    for row, (shift, values) in zip(rows, expected, strict=True):
        assert (row[:shift] == 255).all()
        np.testing.assert_array_equal(row[shift : shift + len(values)], values)
        assert not row[shift + len(values) :].any()
    assert (guarded[..., step_bytes:] == 255).all()


@pytest.mark.parametrize(
    "span",
    [
        [-1, 0, 0, 1, 0, 0],
        [1, 0, 0, 1, 0, 0],
        [0, -1, 0, 1, 0, 0],
        [0, 2, 0, 1, 0, 0],
        [0, 0, -1, 1, 0, 0],
        [0, 0, 2, 1, 0, 0],
        [0, 0, 0, 4, 0, 0],
        [0, 0, 0, 3, 0, 2],
        [0, 0, 0, 1, 2, 0],
        [0, 0, 0, 1, -1, 0],
        [0, 0, 0, 1, 0, -1],
        [0, 0, 0, 1, 0, 1 << 62],
        [0, 0, 0, (1 << 63) - 1, 0, 0],
    ],
)
def test_a_span_outside_is_told_and_nothing_is_written(span: list[int]) -> None:
    table = Table([3, 2], 4)
    out = np.full((2, 4, 4), 255, np.uint8)
    assert copy([table], [[0, 1, 0, 2, 1, 0], span], out) == 1
    assert (out == 255).all()


@pytest.mark.parametrize("bounds", [[1, 0, 2], [-1, 2, 2], [0, 6, 6], [4, 3, 3], [0, (1 << 63) - 1, 0]])
def test_offsets_that_point_outside_are_told(bounds: list[int]) -> None:
    table = Table([3, 2], 4)
    table.offsets[:] = np.array(bounds, np.int64).view(np.uint8)
    out = np.full((1, 4, 4), 255, np.uint8)
    assert copy([table], [[0, 0, 0, 2, 0, 0]], out) == 0
    assert (out == 255).all()
