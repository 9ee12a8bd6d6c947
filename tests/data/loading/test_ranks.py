"""Batches dealt to ranks: the same number to each, every item once, also when the number of ranks changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.order import Ints
from lowtide.data.loading.ranks import Deal, check_rank, dealt_end
from lowtide.errors import LowtideError

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=30)
RANKS = st.integers(1, 12)


def batches_of(sizes: list[int]) -> list[Ints]:
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def items_of(batches: list[Ints]) -> list[int]:
    return sorted(np.concatenate([np.empty(0, np.int64), *batches]).tolist())


@given(SIZES, RANKS, st.integers(0, 40))
def test_every_rank_is_given_the_same_number_and_every_item_comes_once(
    sizes: list[int], ranks: int, before: int
) -> None:
    batches = batches_of(sizes)
    dealt = dealt_end(batches, before, [Deal(0, ranks)])
    assert (before + len(dealt)) % ranks == 0
    assert len(dealt) - len(batches) < ranks
    assert items_of(dealt) == items_of(batches)
    assert max(map(len, dealt)) <= max(sizes)
    assert all(len(batch) for batch in dealt) == (sum(sizes) >= len(dealt))


@given(SIZES, RANKS, RANKS, RANKS, st.data())
def test_what_is_left_is_dealt_to_other_ranks_and_what_was_dealt_stays(
    sizes: list[int], first: int, second: int, third: int, data: st.DataObject
) -> None:
    deals = [Deal(0, first)]
    dealt = dealt_end(batches_of(sizes), 0, deals)
    for ranks in (second, third):
        rounds = data.draw(st.integers(0, (len(dealt) - deals[-1].at) // deals[-1].ranks))
        deals.append(Deal(deals[-1].at + rounds * deals[-1].ranks, ranks))
        anew = dealt_end(batches_of(sizes), 0, deals)
        assert [batch.tolist() for batch in anew[: deals[-1].at]] == [batch.tolist() for batch in dealt[: deals[-1].at]]
        assert (len(anew) - deals[-1].at) % ranks == 0
        assert items_of(anew) == items_of(dealt)
        dealt = anew


def test_the_last_batches_are_cut_into_nearly_equal_ones() -> None:
    dealt = dealt_end(batches_of([8, 8, 8, 8, 6]), 0, [Deal(0, 4)])
    assert list(map(len, dealt)) == [8, 8, 8, 8, 2, 2, 1, 1]


def test_batches_before_are_cut_too_where_the_last_round_has_too_few_items() -> None:
    dealt = dealt_end(batches_of([8, 8, 8, 8, 2]), 0, [Deal(0, 4)])
    assert list(map(len, dealt)) == [8, 8, 8, 2, 2, 2, 2, 2]


def test_what_was_cut_for_earlier_ranks_stays_cut_for_those_that_go_on() -> None:
    sizes = [8, 8, 8, 8, 2]
    dealt = dealt_end(batches_of(sizes), 0, [Deal(0, 4), Deal(4, 3)])
    assert list(map(len, dealt)) == [8, 8, 8, 2, 2, 2, 1, 1, 1, 1]
    again = dealt_end(batches_of(sizes), 0, [Deal(0, 4), Deal(4, 3), Deal(7, 2)])
    assert [batch.tolist() for batch in again[:7]] == [batch.tolist() for batch in dealt[:7]]
    assert (len(again) - 7) % 2 == 0


def test_with_fewer_items_than_ranks_the_last_ranks_have_none() -> None:
    dealt = dealt_end(batches_of([2]), 0, [Deal(0, 3)])
    assert list(map(len, dealt)) == [1, 1, 0]


@pytest.mark.parametrize(("rank", "ranks"), [(1, 1), (-1, 2), (0, 0), (0.0, 1), (True, 2)])
def test_a_rank_that_there_is_not_is_refused(rank: int, ranks: int) -> None:
    with pytest.raises(LowtideError, match="rank="):
        check_rank(rank, ranks)
