"""Missing values become what was asked for, and are counted; where chunks end makes no difference."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.fields import Field
from lowtide.data.ingestion.dtypes import UnfitError
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.filling import Filler, drop_sequences, drop_steps
from lowtide.data.ingestion.missing import Policy
from lowtide.data.ingestion.sources.chunk import Chunk, offsets_of
from lowtide.data.ingestion.tally import Tally

VALUES = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=8), min_size=1, max_size=5)
POLICIES = st.sampled_from([Policy("value", 50.0), Policy("forward", 70.0), Policy("drop")])


def plan(*policies: Policy) -> FieldPlan:
    columns = tuple("abc"[: len(policies)])
    return FieldPlan(Field("x", "inputs", "step", "float32", len(policies), columns), "number", columns, policies)


def fill(
    plan: FieldPlan, sequences: Sequence[Sequence[tuple[float | None, ...]]], ends: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Fill sequences of rows, in chunks that end anywhere; values and dropped steps."""
    tally = Tally()
    filler = Filler(plan, {}, tally)
    rows = [row for sequence in sequences for row in sequence]
    starts = np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])])
    places = sorted({0, len(rows), *(end for end in ends if end < len(rows))})
    values, drops = [], []
    for first, last in pairwise(places):
        array = np.array([[np.nan if v is None else v for v in row] for row in rows[first:last]], dtype=np.float32)
        inside = [s for s in starts if first < s < last]
        offsets = np.array([0, *(s - first for s in inside), last - first], dtype=np.int64)
        missing = np.isnan(array)
        made, dropped = filler.fill(
            array, missing if missing.any() else None, offsets, continues=first not in set(starts.tolist())
        )
        values.append(made)
        drops.append(dropped)
    return np.concatenate(values), np.concatenate(drops)


def expected(policy: Policy, sequence: list[float | None]) -> list[float]:
    """One column, the slow way."""
    made, last = [], None
    for value in sequence:
        if value is not None:
            last = value
            made.append(float(value))
        elif policy.kind == "forward" and last is not None:
            made.append(float(last))
        else:
            made.append(float("nan") if policy.value is None else float(policy.value))
    return made


@given(sequences=VALUES, ends=st.lists(st.integers(0, 40), max_size=5), policy=POLICIES)
def test_values_are_filled_as_asked_wherever_chunks_end(
    sequences: list[list[float | None]], ends: list[int], policy: Policy
) -> None:
    sequences = [sequence for sequence in sequences if sequence]
    if not sequences:
        return
    known = [[(value, 1.0) for value in sequence] for sequence in sequences]
    values, dropped = fill(plan(policy, Policy()), known, ends)
    wanted = [value for sequence in sequences for value in expected(policy, sequence)]
    missing = [value is None for sequence in sequences for value in sequence]
    np.testing.assert_array_equal(values[:, 0], np.array(wanted, dtype=np.float32))
    assert (values[:, 1] == 1).all()
    assert dropped.tolist() == (missing if policy.kind == "drop" else [False] * len(missing))


def test_missing_is_an_error_by_default_and_tells_the_place() -> None:
    with pytest.raises(UnfitError, match="missing") as caught:
        fill(plan(Policy(), Policy()), [[(1, 2), (3, None)]], [])
    assert (caught.value.row, caught.value.feature) == (1, 1)


def test_nothing_before_is_an_error_where_nothing_stands_for_it() -> None:
    with pytest.raises(UnfitError, match="none comes before it") as caught:
        fill(plan(Policy("forward")), [[(1,)], [(None,), (2,)]], [])
    assert caught.value.row == 1


def test_what_is_filled_is_counted_by_column() -> None:
    tally = Tally()
    filler = Filler(plan(Policy("value", 0.0), Policy("forward")), {}, tally)
    array = np.array([[1, 1], [np.nan, np.nan], [np.nan, 3]], dtype=np.float32)
    made, _ = filler.fill(array, np.isnan(array), np.array([0, 3]), continues=False)
    assert made.tolist() == [[1, 1], [0, 1], [0, 3]]
    assert sorted(tally.filled.values()) == [1, 2]


def chunk(lengths: list[int], *, continues: bool = False, goes_on: bool = False) -> Chunk:
    steps = np.arange(sum(lengths), dtype=np.float32)
    names = pa.array(range(len(lengths)), pa.int64())
    labels = {"y": np.arange(len(lengths))}
    return Chunk(names, offsets_of(np.array(lengths)), {"x": steps}, labels, {}, pa.array(steps), continues, goes_on)


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=8), data=st.data())
def test_dropped_steps_go_from_every_array(lengths: list[int], data: st.DataObject) -> None:
    total = sum(lengths)
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)), dtype=np.bool_)
    made = drop_steps(chunk(lengths), gone)
    assert made.steps["x"].tolist() == np.flatnonzero(~gone).tolist()
    assert made.order is not None
    assert made.order.to_pylist() == np.flatnonzero(~gone).tolist()
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    counts = [int((~gone[a:b]).sum()) for a, b in pairwise(bounds)]
    assert made.lengths.tolist() == counts


def test_a_dropped_sequence_takes_its_open_end_with_it() -> None:
    cut = chunk([2, 3, 1], continues=True, goes_on=True)
    made = drop_sequences(cut, np.array([True, False, False]))
    assert (made.continues, made.goes_on) == (False, True)
    assert made.names.to_pylist() == [1, 2]
    assert made.steps["x"].tolist() == [2, 3, 4, 5]
    assert made.values["y"].tolist() == [1, 2]
    made = drop_sequences(cut, np.array([False, False, True]))
    assert (made.continues, made.goes_on) == (True, False)


def test_a_chunk_without_a_step_is_filled_as_any_other() -> None:
    filler = Filler(plan(Policy("forward", 9.0), Policy("forward", 9.0)), {}, Tally())
    filled, dropped = filler.fill(np.empty((0, 2)), None, np.array([0, 0]), continues=False)
    assert (filled.shape, dropped.shape) == ((0, 2), (0,))
