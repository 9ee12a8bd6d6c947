"""Padding puts every step to its place, whichever way it is copied."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.padding import pad


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    spare=st.integers(0, 3),
    width=st.integers(0, 3),
    batch_first=st.booleans(),
)
def test_steps_come_to_their_places_and_zeros_behind(
    lengths: list[int], spare: int, width: int, batch_first: bool
) -> None:
    steps, batch = max(lengths) + spare, len(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shape = (width,) if width else ()
    values = np.random.default_rng(0).integers(1, 100, (sum(lengths), *shape)).astype(np.int16)
    out = np.full(((batch, steps) if batch_first else (steps, batch)) + shape, -1, np.int64)
    pad(out, values, offsets, batch_first=batch_first)
    rows = out if batch_first else out.swapaxes(0, 1)
    for row, start, stop in zip(rows, offsets[:-1], offsets[1:], strict=True):
        np.testing.assert_array_equal(row[: stop - start], values[start:stop])
        assert not row[stop - start :].any()
