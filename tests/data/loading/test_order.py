"""Orders are permutations, computed in parts, and the same on every machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.order import Permutation, below, hashes, key_of

COUNTS = st.integers(1, 3000)
KEYS = st.integers(0, 2**64 - 1)


@given(COUNTS, KEYS)
def test_every_number_comes_once_and_its_place_is_found_again(count: int, key: int) -> None:
    places = np.arange(count)
    permutation = Permutation(count, key)
    order = permutation(places)
    np.testing.assert_array_equal(np.sort(order), places)
    np.testing.assert_array_equal(permutation.places_of(order), places)


@given(st.integers(1, 2**40), KEYS, st.data())
def test_a_part_of_a_huge_order_is_computed_alone(count: int, key: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count - 1))
    places = np.arange(first, min(count, first + 50))
    permutation = Permutation(count, key)
    order = permutation(places)
    assert order.min() >= 0
    assert order.max() < count
    np.testing.assert_array_equal(permutation.places_of(order), places)
    np.testing.assert_array_equal(permutation(places[-1:]), order[-1:])


def test_the_order_is_this_one_wherever_it_is_computed() -> None:
    assert key_of(3, 1) == 17027085370592858547
    assert Permutation(10, key_of(3, 1))(np.arange(10)).tolist() == [9, 2, 0, 1, 5, 6, 4, 8, 3, 7]
    assert hashes(key_of(7), np.asarray([0, 1])).tolist() == [8409816773569330625, 13309476754707697221]


def test_other_parts_and_another_order_of_parts_give_other_keys() -> None:
    keys = [key_of(*parts) for parts in ((0,), (0, 0), (1, 0), (0, 1), (-1,), (2**64 - 2,))]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("count", [50, 1000])
def test_orders_of_other_keys_have_nothing_to_do_with_each_other(count: int) -> None:
    places = np.arange(count)
    orders = [Permutation(count, key_of(5, key))(places) for key in range(300)]
    correlations = [np.corrcoef(places, order)[0, 1] for order in orders]
    assert np.std(correlations) * np.sqrt(count) == pytest.approx(1, abs=0.2)
    assert abs(np.mean(correlations)) * np.sqrt(count * 300) < 4
    neighbours = np.mean([np.sum(np.abs(np.diff(order)) == 1) for order in orders])
    assert neighbours == pytest.approx(2, abs=0.4)


def test_all_orders_of_few_numbers_occur() -> None:
    seen = {tuple(Permutation(4, key_of(key))(np.arange(4))) for key in range(2000)}
    assert len(seen) == 24


@given(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=20), KEYS)
def test_drawn_numbers_lie_below_their_limits(limits: list[int], key: int) -> None:
    drawn = below(np.asarray(limits), hashes(key, np.arange(len(limits))))
    assert (drawn >= 0).all()
    assert (drawn < limits).all()
