"""Every sequence or step is in one part; parts are reproducible, stay as they are, and meet what was asked for."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import lowtide
from lowtide.data.splitting.rules import ByIds, BySequence, ByTime
from lowtide.data.splitting.splits import SplitMaker, Splits, count_before, make_splits

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}
PARTS = st.integers(2, 5).flatmap(
    lambda count: st.lists(st.integers(1, 20), min_size=count, max_size=count).map(
        lambda weights: {f"part{number}": weight / sum(weights) for number, weight in enumerate(weights)}
    )
)


def names(count: int) -> list[str]:
    return [f"user-{number}" for number in range(count)]


def ones(count: int) -> NDArray[np.int64]:
    return np.ones(count, dtype=np.int64)


@given(PARTS, st.integers(10, 300), st.integers(0, 9))
def test_every_sequence_is_in_one_part_and_no_part_is_empty(parts: dict[str, float], count: int, seed: int) -> None:
    made = make_splits(BySequence(parts, seed=seed), ids=names(count), lengths=ones(count))
    members = [made.part(name).index for name in parts]
    assert sorted(np.concatenate(members).tolist()) == list(range(count))
    assert all(len(index) for index in members)


@given(PARTS, st.lists(st.integers(0, 50), min_size=20, max_size=40), st.integers(0, 4))
def test_every_step_is_in_one_part_and_parts_follow_each_other(
    parts: dict[str, float], lengths: list[int], gap: int
) -> None:
    counts = np.array([*lengths, 200], dtype=np.int64)
    made = make_splits(ByTime(parts), ids=names(len(counts)), lengths=counts, gap=gap)
    seen = [np.zeros(length, dtype=np.int64) for length in counts]
    last = np.full(len(counts), -1)
    for name in parts:
        part = made.part(name)
        assert part.start is not None
        assert part.stop is not None
        for sequence, start, stop in zip(part.index, part.start, part.stop, strict=True):
            assert last[sequence] < start < stop
            # a target `gap` steps ahead of the part before lies in front of this part
            assert last[sequence] == -1 or last[sequence] + gap < start
            last[sequence] = stop - 1
            seen[sequence][start:stop] += 1
    assert all(steps.max(initial=0) <= 1 for steps in seen)
    if not gap:
        assert all(steps.min(initial=1) == 1 for steps in seen)


def test_fractions_are_met_as_a_hash_meets_them() -> None:
    made = make_splits(SHARES, ids=names(20_000), lengths=ones(20_000))
    assert [len(made.part(name).index) for name in SHARES] == pytest.approx([16_000, 2_000, 2_000], abs=250)


def test_fractions_of_time_are_met_to_the_nearest_step() -> None:
    made = make_splits(ByTime(SHARES), ids=names(4), lengths=np.array([10, 1, 0, 5_000_000_000]))
    assert made.values.tolist() == [[0, 8, 9, 10], [0, 1, 1, 1], [0, 0, 0, 0], [0, 4 * 10**9, 45 * 10**8, 5 * 10**9]]


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_splits_are_the_same_everywhere(kind: pa.DataType) -> None:
    ids = pa.array(range(40)).cast(kind)
    made = make_splits({"a": 0.5, "b": 0.5}, ids=ids, lengths=ones(40))
    bits = int("".join(map(str, made.values.tolist())), 2)
    assert bits == {pa.string(): 0x6990991472, pa.int64(): 0xB0EB17A6A4}[kind]


def test_appended_sequences_follow_the_rule_and_move_none() -> None:
    whole = make_splits(SHARES, ids=names(5_000), lengths=ones(5_000))
    begun = make_splits(SHARES, ids=names(3_000), lengths=ones(3_000))
    stored = Splits.from_json(json.loads(json.dumps(begun.to_json())), begun.values)
    appended = make_splits(None, ids=names(5_000)[3_000:], lengths=ones(2_000), after=stored)
    assert appended.values.tolist() == whole.values.tolist()
    assert appended.to_json() == whole.to_json()


def test_sequences_that_arrive_bit_by_bit_are_split_as_together() -> None:
    ids, lengths = pa.array(names(1_000)), np.arange(1_000, dtype=np.int64)
    for rule in (BySequence(SHARES), ByTime(SHARES)):
        maker = SplitMaker(rule)
        for first in range(0, 1_000, 300):
            maker.add(ids[first : first + 300], lengths[first : first + 300])
        assert maker.finish().values.tolist() == make_splits(rule, ids=ids, lengths=lengths).values.tolist()
    chunks = pa.chunked_array([ids[:10], ids[10:]])
    assert make_splits(SHARES, ids=chunks, lengths=lengths).part("test").index.tolist() == (
        make_splits(SHARES, ids=iter([ids]), lengths=lengths).part("test").index.tolist()
    )


def test_another_seed_is_another_draw() -> None:
    drawn = [make_splits(BySequence(SHARES, seed=seed), ids=names(500), lengths=ones(500)).values for seed in (0, 1)]
    assert 0 < np.count_nonzero(drawn[0] != drawn[1]) < 500


def test_few_sequences_leave_no_part_empty() -> None:
    for seed in range(20):
        made = make_splits(BySequence({"train": 0.98, "test": 0.02}, seed=seed), ids=names(3), lengths=ones(3))
        assert sorted(np.bincount(made.values, minlength=2).tolist()) == [1, 2]


def test_more_parts_than_sequences_are_refused() -> None:
    with pytest.raises(lowtide.LowtideError, match=r"gets no sequence of the 1"):
        make_splits({"train": 0.8, "test": 0.2}, ids=["alone"], lengths=ones(1))


def test_sequences_go_where_they_are_listed() -> None:
    rule = ByIds({"test": ["user-3", "user-1"], "valid": ["user-0"]}, rest="train")
    made = make_splits(rule, ids=names(6), lengths=ones(6))
    assert {name: made.part(name).index.tolist() for name in made.names} == {
        "test": [1, 3],
        "valid": [0],
        "train": [2, 4, 5],
    }
    stored = Splits.from_json(json.loads(json.dumps(made.to_json())), made.values)
    assert make_splits(None, ids=["new"], lengths=ones(1), after=stored).values.tolist() == [1, 0, 2, 0, 2, 2, 2]
    lists = {"a": [1, 2], "b": [3]}
    assert make_splits(lists, ids=np.array([3, 1, 2]), lengths=ones(3)).values.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"a": ["user-0"], "b": ["user-1"]}, "lists no part for 1 sequences, 'user-2'"),
        ({"a": ["user-0", "user-1", "user-2"], "b": ["user-9"]}, "1 sequences the data do not have, 'user-9'"),
        ({"a": [0], "b": [1]}, "of type string"),
        ({"a": ["user-0"], "b": ["user-0"]}, "'user-0' is listed in the parts 'a' and 'b'"),
    ],
)
def test_lists_that_do_not_fit_the_data_are_refused(rule: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(lowtide.LowtideError, match=said):
        make_splits(rule, ids=names(3), lengths=ones(3))


def test_listed_parts_without_a_rest_take_no_further_sequences() -> None:
    made = make_splits({"a": ["x"], "b": ["y"]}, ids=["x", "y"], lengths=ones(2))
    with pytest.raises(lowtide.LowtideError, match="lists no part"):
        make_splits(None, ids=["z"], lengths=ones(1), after=made)


DAYS = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4, 1, 2)]


@pytest.mark.parametrize(
    ("values", "boundary"),
    [
        (pa.array([1, 2, 3, 4, 1, 2]), 3),
        (pa.array([1, 2, 3, 4, 1, 2], pa.int16()), 2.5),
        (pa.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0]), 3),
        (pa.array(["a", "b", "c", "d", "a", "b"]), "c"),
        (pa.array(DAYS).cast(pa.timestamp("ms")), "2024-01-03"),
        (pa.array(DAYS).cast(pa.timestamp("ns")), datetime(2024, 1, 3)),  # noqa: DTZ001 - as the column
        (pa.array(DAYS).cast(pa.date32()), date(2024, 1, 3)),
        (pa.array(DAYS, pa.timestamp("us", "UTC")), "2024-01-03"),
        (pa.array(DAYS, pa.timestamp("us", "UTC")), "2024-01-03 02:00:00+02:00"),
        (pa.array(DAYS, pa.timestamp("us", "UTC")), datetime(2024, 1, 3, tzinfo=UTC)),
    ],
)
def test_steps_before_a_value_are_counted_in_every_type(values: pa.Array, boundary: Any) -> None:  # noqa: ANN401
    counted = count_before(values, np.array([0, 4, 4, 6]), [boundary])
    assert counted.tolist() == [[2], [0], [2]]


@pytest.mark.parametrize(
    ("values", "boundary"),
    [
        (pa.array([1, 2]), "2024-01-01"),
        (pa.array(DAYS), 5),
        (pa.array(["a"]), 5),
        (pa.array(DAYS), "soon"),
        (pa.array([1, 2]), date(2024, 1, 1)),
        (pa.array([1, 2], pa.int8()), 1000),
    ],
)
def test_a_value_of_another_kind_is_refused(values: pa.Array, boundary: Any) -> None:  # noqa: ANN401
    with pytest.raises(lowtide.LowtideError, match="order column"):
        count_before(values, np.array([0, len(values)]), [boundary])


def test_a_split_at_a_value_cuts_every_sequence_there() -> None:
    rule = ByTime(until={"train": 10, "valid": 20, "test": None})
    order = np.concatenate([np.arange(30), np.arange(5, 15), np.arange(25, 28)])
    offsets = np.array([0, 30, 40, 43])
    before = count_before(order, offsets, rule.boundaries)
    made = make_splits(rule, ids=names(3), lengths=np.diff(offsets), before=before)
    parts = {name: made.part(name) for name in made.names}
    assert parts["train"].index.tolist() == [0, 1]
    assert parts["train"].stop is not None
    assert parts["train"].stop.tolist() == [10, 5]
    assert parts["test"].index.tolist() == [0, 2]
    assert parts["test"].start is not None
    assert parts["test"].start.tolist() == [20, 0]


def test_pieces_of_a_sequence_count_as_the_sequence() -> None:
    order = np.arange(100)
    pieces = count_before(order, np.array([0, 30, 60, 100]), [10, 45])
    assert pieces.sum(axis=0).tolist() == count_before(order, np.array([0, 100]), [10, 45])[0].tolist()


def test_ends_out_of_order_and_behind_all_data_are_refused() -> None:
    order, offsets = np.arange(10), np.array([0, 10])
    for ends, said in (({"a": 7, "b": 3, "c": None}, "do not follow"), ({"a": 99, "b": None}, "'b' gets no step")):
        rule = ByTime(until=ends)
        before = count_before(order, offsets, rule.boundaries)
        with pytest.raises(lowtide.LowtideError, match=said):
            make_splits(rule, ids=["x"], lengths=np.diff(offsets), before=before)


def test_stored_numbers_that_cannot_be_true_are_refused() -> None:
    made = make_splits({"a": 0.5, "b": 0.5}, ids=names(9), lengths=ones(9))
    told = made.to_json()
    cuts = np.array([[0, 5, 3]], dtype=np.int64)
    for values in (made.values.astype(np.int16), made.values.reshape(3, 3), cuts[:, :2]):
        with pytest.raises(lowtide.LowtideError, match="damaged"):
            Splits.from_json(told, values)
    for described in ({}, {**told, "gap": -1}, {**told, "names": []}, {**told, "rule": None}):
        with pytest.raises(lowtide.LowtideError, match="damaged"):
            Splits.from_json(described, made.values)
    for wrong in (cuts, np.array([[-1, 3, 5]]), made.values + np.int8(7)):
        with pytest.raises(lowtide.LowtideError, match="damaged"):
            Splits.from_json(told, wrong).part("a")


def test_appended_sequences_go_to_the_parts_that_are_there() -> None:
    begun = make_splits(SHARES, ids=names(50), lengths=ones(50))
    with pytest.raises(lowtide.LowtideError, match="asks for"):
        make_splits({"train": 0.5, "other": 0.5}, ids=["a"], lengths=ones(1), after=begun)


def test_a_part_that_is_not_there_is_named() -> None:
    made = make_splits(SHARES, ids=names(50), lengths=ones(50))
    with pytest.raises(lowtide.LowtideError, match=r"'dev'.*\n.*'train', 'valid', 'test'"):
        made.part("dev")
