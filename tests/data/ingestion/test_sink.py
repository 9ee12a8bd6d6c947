"""Chunks end up in the store as the sequences that they hold, wherever they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.data.disk.writer import StoreWriter
from lowtide.data.fields import Field, Schema
from lowtide.data.ingestion.sink import Sink
from lowtide.data.ingestion.sources.chunk import Chunk, offsets_of
from lowtide.data.ingestion.tally import Tally
from lowtide.data.ingestion.unique_names import UniqueNames
from lowtide.data.splitting.rules import ByTime
from lowtide.data.splitting.splits import SplitMaker
from tests.data.ingesting_cases import content

SCHEMA = Schema((Field("x", "inputs", "step", "float32", 0), Field("y", "targets", "sequence", "float32", 0)), "int64")


def cut(lengths: list[int], ends: list[int]) -> Iterator[Chunk]:
    """Sequences of so many steps, in chunks that end behind these steps."""
    offsets = offsets_of(np.array(lengths))
    places = sorted({0, int(offsets[-1]), *(end for end in ends if end < offsets[-1])})
    for first, last in pairwise(places):
        here = np.clip(offsets, first, last)
        there = np.flatnonzero(np.diff(here) > 0)
        begin, end = int(there[0]), int(there[-1]) + 1
        steps = np.arange(first, last, dtype=np.float32)
        yield Chunk(
            names=pa.array(range(begin, end)),
            offsets=here[begin : end + 1] - first,
            steps={"x": steps},
            values={"y": np.arange(begin, end, dtype=np.float32)},
            missing={},
            order=pa.array(steps),
            continues=bool(offsets[begin] < first),
            goes_on=bool(offsets[end] > last),
        )


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    ends=st.lists(st.integers(1, 29), max_size=6),
    boundary=st.integers(1, 29),
)
def test_cuts_of_chunks_leave_no_trace(lengths: list[int], ends: list[int], boundary: int) -> None:
    total = sum(lengths)
    boundary = 1 + boundary % max(1, total - 1) if total > 1 else 1
    splits = SplitMaker(ByTime(until={"train": boundary, "test": None})) if total > 1 else None
    with TemporaryDirectory() as folder:
        writer = StoreWriter(Path(folder) / "store", SCHEMA, shard_bytes=256)
        with writer:
            sink = Sink(writer, SCHEMA, Tally(), splits=splits, names=UniqueNames())
            for chunk in cut(lengths, ends):
                sink.put(chunk)
            store = writer.written()
            starts = offsets_of(np.array(lengths)).tolist()
            assert content(store) == {
                number: {"x": [float(step) for step in range(*bounds)], "y": float(number)}
                for number, bounds in enumerate(pairwise(starts))
            }
        assert (sink.sequences, sink.steps) == (len(lengths), total)
        if splits is not None:
            trained = splits.finish().values[:, 1]
            assert trained.tolist() == [min(max(boundary - first, 0), last - first) for first, last in pairwise(starts)]
