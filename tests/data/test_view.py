"""Part of a store reads like a store of that part alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Store, View
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, STEP_BYTES, Sequences, assert_holds, sequences, write

LENGTHS = [5, 0, 130, 1, 60, 12]
MADE = sequences(LENGTHS)
STEPS = [field.name for field in SCHEMA.per_step]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Some sequences of which two lie in pieces."""
    return write(tmp_path_factory.mktemp("store") / "store", MADE, shard_bytes=40 * STEP_BYTES)


def cut(made: Sequences, spans: list[tuple[int, int, int]]) -> Sequences:
    """Some steps of some sequences, in memory."""
    chosen = [(*made[number], start, stop) for number, start, stop in spans]
    return [
        (name, {key: array[start:stop] if key in STEPS else array for key, array in arrays.items()})
        for name, arrays, start, stop in chosen
    ]


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Some steps of some sequences."""
    numbers = draw(st.lists(st.integers(0, len(LENGTHS) - 1), min_size=1, max_size=8))
    starts = [draw(st.integers(0, LENGTHS[number])) for number in numbers]
    return [
        (number, start, draw(st.integers(start, LENGTHS[number])))
        for number, start in zip(numbers, starts, strict=True)
    ]


@given(spans())
def test_a_view_holds_the_steps_that_it_was_made_of(store: Store, chosen: list[tuple[int, int, int]]) -> None:
    view = View(store, *(np.array(part) for part in zip(*chosen, strict=True)))
    assert_holds(view, cut(MADE, chosen))
    assert_holds(pickle.loads(pickle.dumps(view)), cut(MADE, chosen))  # noqa: S301 - made here


@given(spans(), st.data())
def test_a_view_of_a_view_is_a_view_of_the_store(
    store: Store, chosen: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    view = View(store, *(np.array(part) for part in zip(*chosen, strict=True)))
    numbers = data.draw(st.lists(st.integers(-len(chosen), len(chosen) - 1), min_size=1, max_size=5))
    assert_holds(view[np.array(numbers)], [cut(MADE, chosen)[number] for number in numbers])
    low, high = sorted(data.draw(st.tuples(st.integers(0, len(chosen)), st.integers(0, len(chosen)))))
    part = view[low:high]
    assert len(part) == high - low
    if high > low:
        assert_holds(part, cut(MADE, chosen)[low:high])


def test_the_view_of_everything_is_the_store(store: Store) -> None:
    assert_holds(store.view(), MADE)
    assert_holds(store[:], MADE)
    assert_holds(store[::-1], MADE[::-1])
    assert isinstance(store, View)
    assert store.store is store.view().store is store


def test_a_mask_chooses_sequences(store: Store) -> None:
    assert_holds(store[np.asarray(store.lengths) > 10], [MADE[2], MADE[4], MADE[5]])


def test_numbers_out_of_range_are_index_errors(store: Store) -> None:
    for number in (6, -7, 100):
        with pytest.raises(IndexError):
            _ = store[:][number]
    with pytest.raises(IndexError):
        _ = store[np.array([0, 6])]


def test_a_number_may_be_an_array_and_an_array_of_numbers_has_one_axis(store: Store) -> None:
    number: Any = np.array(2)
    assert store[number].id == store[2].id
    assert store[1:][number].id == store[3].id
    several: Any
    for several in (np.array([[0, 1]]), None):
        with pytest.raises(LowtideError, match="array of 2 axes"):
            _ = store[several]


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (-1, 1)])
def test_steps_of_another_part_are_not_read(store: Store, start: int, stop: int) -> None:
    view = View(store, np.array([2]), np.array([10]), np.array([12]))
    with pytest.raises(LowtideError, match="outside of the view"):
        view.read("x", np.array([0]), np.array([start]), np.array([stop]))


def test_the_fingerprint_tells_parts_apart(store: Store, tmp_path: Path) -> None:
    ones = np.array([1, 2])
    views = [store, store[1:3], store[[1, 3]], View(store, ones, 0 * ones, ones), View(store, ones, 0 * ones, 0 * ones)]
    assert len({view.fingerprint for view in views}) == len(views)
    assert all(view.fingerprint is view.fingerprint for view in views)  # a loader's states ask for it again and again
    assert store[1:3].fingerprint == store[np.array([1, 2])].fingerprint
    assert write(tmp_path / "b", MADE, shard_bytes=40 * STEP_BYTES)[1:3].fingerprint == store[1:3].fingerprint


def test_a_view_says_what_it_is(store: Store) -> None:
    assert repr(store[2:4]) == f"View(2 of 6 sequences, 131 steps, of {store.path})"


def test_batches_of_a_view_hold_its_sequences(store: Store) -> None:
    part = store[[0, 2, 4]]
    batches = list(part.loader(batch_size=2, framework="numpy", prefetch_bytes=0))
    assert sorted(int(length) for batch in batches for length in batch.lengths) == [5, 60, 130]
    assert len(part.dataset(batch_size=2, framework="numpy")) == 2
