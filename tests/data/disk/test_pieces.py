"""Sequences are found in their rows, however many pieces they lie in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.disk.pieces import Pieces


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30))
def test_every_sequence_has_the_rows_that_were_written_for_it(pieces: list[int]) -> None:
    ends = np.cumsum(pieces)
    continued = sorted(set(range(ends[-1])) - set((ends - pieces).tolist()))
    found = Pieces(np.array(continued, dtype=np.int64))
    every = np.arange(len(pieces))
    rows = [list(range(end - count, end)) for end, count in zip(ends.tolist(), pieces, strict=True)]
    assert [list(found.rows(sequence)) for sequence in every.tolist()] == rows
    assert found.first_rows(every).tolist() == [sequence[0] for sequence in rows]
    assert found.last_rows(every).tolist() == [sequence[-1] for sequence in rows]
    assert found.several(every).tolist() == [count > 1 for count in pieces]
