"""Running codes in spans: every code is predicted once, whatever the batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.text.batch import TextBatch, TextCounts
from lowtide.data.text.spans import spans_of


def batches(length: int, ends: list[int]) -> Iterator[TextBatch]:
    """A document of so many codes, 0, 1, 2, ..., in batches that end behind these."""
    places = sorted({0, length, *(end for end in ends if end < length)})
    for first, last in pairwise(places):
        codes, offsets = np.arange(first, last), np.array([0, last - first])
        yield TextBatch(pa.array(["a"]), codes, offsets, continues=first > 0, goes_on=last < length)


@given(
    length=st.integers(1, 40),
    size=st.integers(1, 9),
    horizon=st.integers(0, 4),
    ends=st.lists(st.integers(1, 39), max_size=6),
)
def test_every_code_is_predicted_once(length: int, size: int, horizon: int, ends: list[int]) -> None:
    counts = TextCounts()
    spans: list[list[int]] = []
    names: list[str] = []
    for batch in spans_of(batches(length, ends), size, horizon, counts):
        names += batch.ids.to_pylist()
        spans += [batch.codes[first:last].tolist() for first, last in pairwise(batch.offsets)]
    assert [code for span in spans for code in span[horizon:]] == list(range(horizon, length))
    assert all(len(span) == size + horizon for span in spans[:-1])
    assert names == [f"a:{number}" for number in range(1, len(spans) + 1)]
    assert counts.short == int(length <= horizon)
