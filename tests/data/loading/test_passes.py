"""A pass comes to every step once, in order, a bounded number at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.passes import pieces_of, steps_of
from lowtide.data.loading.windows import WindowItems


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 60))
def test_every_step_comes_once_in_order(lengths: list[int], steps: int) -> None:
    seen = []
    for rows, starts, stops in pieces_of(np.asarray(lengths, np.int64), steps):
        assert (stops > starts).all()
        assert (stops - starts).sum() < 2 * steps or len(rows) == 1
        assert len(rows) > 1 or (stops - starts)[0] <= max(steps, 1)
        for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
            seen += [(row, step) for step in range(start, stop)]
    assert seen == [(row, step) for row, length in enumerate(lengths) for step in range(length)]


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 9), st.integers(1, 9), st.integers(1, 60))
def test_every_step_of_every_row_comes_once(lengths: list[int], size: int, stride: int, steps: int) -> None:
    items = WindowItems(np.asarray(lengths, np.int64), size, stride)
    seen: list[tuple[int, int]] = []
    for spans in steps_of(items, steps):
        for row, start, stop in zip(
            *(part.tolist() for part in (spans.sequence, spans.start, spans.stop)), strict=True
        ):
            seen += [(row, step) for step in range(start, stop)]
    whole = items.spans(np.arange(items.count), 0)
    rows = zip(*(part.tolist() for part in (whole.sequence, whole.start, whole.stop)), strict=True)
    assert seen == [(row, step) for row, start, stop in rows for step in range(start, stop)]
