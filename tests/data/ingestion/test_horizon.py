"""Targets lie as many steps ahead as asked, whatever sequences chunks cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.fields import Field
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.horizon import Horizon
from lowtide.data.ingestion.sources.chunk import Chunk, offsets_of

INPUT = FieldPlan(Field("x", "inputs", "step", "float32", 1), "number")
TARGET = FieldPlan(Field("y", "targets", "step", "float32", 0), "number")
SHIFTED = FieldPlan(Field("y", "targets", "step", "float32", 1), "number", shifted_from="x")
LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


def chunks_of(lengths: list[int], ends: list[int], *, with_target: bool) -> Iterator[Chunk]:
    """Sequences in chunks that end anywhere: x counts all steps, y = x + 0.5, the order is x as well."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = sorted({0, int(starts[-1]), *(end for end in ends if end < starts[-1])})
    for first, last in pairwise(places):
        touched = [n for n in range(len(lengths)) if starts[n] < last and starts[n + 1] > first]
        counts = np.array([min(starts[n + 1], last) - max(starts[n], first) for n in touched], dtype=np.int64)
        x = np.arange(first, last, dtype=np.float32)
        steps = {"x": x[:, np.newaxis], **({"y": x + 0.5} if with_target else {})}
        yield Chunk(
            pa.array(touched, pa.int64()),
            offsets_of(counts),
            steps,
            {},
            {},
            pa.array(np.arange(first, last)),
            continues=bool(starts[touched[0]] < first),
            goes_on=bool(starts[touched[-1] + 1] > last),
        )


@given(lengths=LENGTHS, ends=st.lists(st.integers(0, 70), max_size=8), horizon=st.integers(1, 5), own=st.booleans())
def test_each_target_is_the_value_so_many_steps_ahead(
    lengths: list[int], ends: list[int], horizon: int, *, own: bool
) -> None:
    shifter = Horizon(horizon, [INPUT, TARGET if own else SHIFTED])
    found: dict[int, list[tuple[float, float, int]]] = {}
    for chunk in chunks_of(lengths, ends, with_target=own):
        made = shifter.shift(chunk)
        assert made.order is not None
        assert len(made.steps["x"]) == len(made.steps["y"]) == len(made.order) == made.offsets[-1]
        assert (made.continues, made.goes_on) == (chunk.continues, chunk.goes_on)
        for place, name in enumerate(made.names.to_pylist()):
            piece = slice(int(made.offsets[place]), int(made.offsets[place + 1]))
            steps = zip(
                made.steps["x"][piece].reshape(-1).tolist(),
                made.steps["y"][piece].reshape(-1).tolist(),
                made.order[piece].to_pylist(),
                strict=True,
            )
            found.setdefault(name, []).extend(steps)
    start = 0
    for number, length in enumerate(lengths):
        ahead = 0.5 if own else 0.0
        expected = [(float(t), t + horizon + ahead, t) for t in range(start, start + max(0, length - horizon))]
        assert found.get(number, []) == expected
        start += length
