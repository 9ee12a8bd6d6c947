"""The list of batches: every item once an epoch, the same wherever one comes in, for any number of ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading import batch_list
from lowtide.data.loading.batch_list import BatchList, ListSettings
from lowtide.data.loading.buckets import BatchSize, Rounding
from lowtide.data.loading.drafts import Draft, PositionData
from lowtide.data.loading.policy import SequenceItems
from lowtide.errors import LowtideError
from tests.data.loading_cases import log_normal

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=200).map(lambda lengths: np.asarray(lengths, np.int64))
SIZES = st.one_of(
    st.integers(1, 12).map(lambda count: BatchSize(count=count)),
    st.integers(60, 300).map(lambda steps: BatchSize(padded_steps=steps)),
)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_list, "POOL_ITEMS", 20)
    monkeypatch.setattr(batch_list, "_LEAST_BATCHES", 2)


def listed(lengths: np.ndarray, size: BatchSize, *, rank: int = 0, ranks: int = 1, **settings: bool) -> BatchList:
    shuffle, drop_last = settings.get("shuffle", True), settings.get("drop_last", False)
    chosen = ListSettings(size, Rounding(), seed=4, shuffle=shuffle, drop_last=drop_last)
    return BatchList(SequenceItems(lengths), chosen, rank=rank, ranks=ranks)


def rows(draft: Draft) -> list[int]:
    found: list[int] = draft.spans.sequence.tolist()
    return found


def epoch_of(drafts: BatchList, epoch: int = 0) -> list[list[int]]:
    return [rows(draft) for draft, _ in drafts.after(drafts.start(epoch))]


def rest_of(drafts: BatchList, position: PositionData) -> list[list[int]]:
    return [rows(draft) for draft, _ in drafts.after(json.loads(json.dumps(position)))]


def flat(batches: list[list[int]]) -> list[int]:
    return sorted(number for batch in batches for number in batch)


@given(LENGTHS, SIZES, st.booleans(), st.integers(0, 3))
def test_every_item_comes_once_an_epoch(lengths: np.ndarray, size: BatchSize, shuffle: bool, epoch: int) -> None:
    drafts = listed(lengths, size, shuffle=shuffle)
    batches = epoch_of(drafts, epoch)
    assert flat(batches) == list(range(len(lengths)))
    assert len(batches) == drafts.count(epoch)
    if not shuffle:
        assert [number for batch in batches for number in batch] == list(range(len(lengths)))


@given(LENGTHS, SIZES)
def test_the_largest_batch_is_the_first_of_all(lengths: np.ndarray, size: BatchSize) -> None:
    drafts = listed(lengths, size)
    count, steps = drafts.largest()
    first = next(drafts.after(drafts.start(0)))[0]
    assert size.count is None or first.steps == lengths.max() == steps
    for epoch in range(3):
        for draft, _ in drafts.after(drafts.start(epoch)):
            assert draft.steps == lengths[rows(draft)].max() <= steps
            padded = len(draft.spans) * draft.steps
            if size.count is None:
                assert size.padded_steps is not None
                assert padded <= size.padded_steps
            else:
                assert padded <= len(first.spans) * first.steps <= count * steps


def test_of_batches_by_steps_the_largest_of_the_longest_items_pool_is_the_first() -> None:
    drafts = listed(np.asarray([1, 1, 11, 31, 9, 9, 8]), BatchSize(padded_steps=60))
    sizes = [len(draft.spans) * draft.steps for draft, _ in drafts.after(drafts.start(0))]
    assert sizes[0] == max(sizes)


def test_epochs_differ_and_repeat_themselves() -> None:
    lengths = log_normal(300)
    drafts = listed(lengths, BatchSize(count=8))
    assert epoch_of(drafts, 1) != epoch_of(drafts, 2)
    assert epoch_of(drafts, 1) == epoch_of(listed(lengths, BatchSize(count=8)), 1)


@given(LENGTHS, SIZES, st.integers(1, 9), st.integers(0, 2), st.booleans())
def test_ranks_together_have_every_item_once_and_equally_many_batches(
    lengths: np.ndarray, size: BatchSize, ranks: int, epoch: int, shuffle: bool
) -> None:
    parts = [listed(lengths, size, rank=rank, ranks=ranks, shuffle=shuffle) for rank in range(ranks)]
    batches = [epoch_of(part, epoch) for part in parts]
    assert {len(part) for part in batches} == {parts[0].count(epoch)}
    assert flat([batch for part in batches for batch in part]) == list(range(len(lengths)))


@given(LENGTHS, SIZES, st.integers(1, 4), st.data())
def test_going_on_from_any_place_gives_the_same_batches(
    lengths: np.ndarray, size: BatchSize, ranks: int, data: st.DataObject
) -> None:
    epoch, rank = data.draw(st.integers(0, 2)), data.draw(st.integers(0, ranks - 1))
    drafts = listed(lengths, size, rank=rank, ranks=ranks)
    positions = [drafts.start(epoch), *(after for _, after in drafts.after(drafts.start(epoch)))]
    taken = data.draw(st.integers(0, len(positions) - 1))
    again = listed(lengths, size, rank=rank, ranks=ranks)
    assert rest_of(again, again.adopt(positions[taken])) == epoch_of(drafts, epoch)[taken:]


def test_a_thousand_places_give_the_same_batches() -> None:
    lengths = log_normal(3000)
    whole = epoch_of(listed(lengths, BatchSize(count=3)), 1)
    drafts = listed(lengths, BatchSize(count=3))
    positions = [drafts.start(1), *(after for _, after in drafts.after(drafts.start(1)))]
    assert len(positions) > 1000
    for taken, position in enumerate(positions):
        following = next(drafts.after(position), None)
        assert (whole[taken] if following else None) == (rows(following[0]) if following else None)


def run(
    lengths: np.ndarray, size: BatchSize, ranks: int, position: PositionData | None, rounds: int
) -> Iterator[tuple[list[list[int]], PositionData]]:
    """Every rank's batches of some rounds, and the place that each of the ranks is at then."""
    for rank in range(ranks):
        drafts = listed(lengths, size, rank=rank, ranks=ranks)
        place = drafts.start(1) if position is None else drafts.adopt(position)
        stream = drafts.after(place)
        taken = []
        for _ in range(rounds):
            draft, place = next(stream, (None, place))
            taken += [] if draft is None else [rows(draft)]
        yield taken, place


@given(LENGTHS, SIZES, st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), min_size=1, max_size=4), st.data())
def test_the_number_of_ranks_may_change_on_the_way(
    lengths: np.ndarray, size: BatchSize, legs: list[tuple[int, int]], data: st.DataObject
) -> None:
    seen: list[list[int]] = []
    position: PositionData | None = None
    for ranks, rounds in [*legs, (data.draw(st.integers(1, 6)), 1000)]:
        results = list(run(lengths, size, ranks, position, rounds))
        assert len({len(taken) for taken, _ in results}) == 1
        seen += [batch for taken, _ in results for batch in taken]
        position = data.draw(st.sampled_from([place for _, place in results]))
    assert flat(seen) == list(range(len(lengths)))


@given(LENGTHS, st.integers(1, 12), st.integers(1, 5))
def test_on_request_all_batches_are_full_and_all_rounds(lengths: np.ndarray, count: int, ranks: int) -> None:
    parts = [listed(lengths, BatchSize(count=count), rank=rank, ranks=ranks, drop_last=True) for rank in range(ranks)]
    for epoch in range(2):
        batches = [epoch_of(part, epoch) for part in parts]
        assert {len(part) for part in batches} == {len(lengths) // count // ranks}
        assert all(len(batch) == count for part in batches for batch in part)


@given(LENGTHS, SIZES, st.integers(1, 12), st.integers(0, 1))
def test_rounds_that_are_left_out_are_so_for_all_ranks(
    lengths: np.ndarray, size: BatchSize, ranks: int, epoch: int
) -> None:
    whole = epoch_of(listed(lengths, size, drop_last=True), epoch)
    parts = [listed(lengths, size, rank=rank, ranks=ranks, drop_last=True) for rank in range(ranks)]
    dealt = [epoch_of(part, epoch) for part in parts]
    rounds = len(whole) // ranks
    assert [len(part) for part in dealt] == [part.count(epoch) for part in parts] == [rounds] * ranks
    assert [batch for together in zip(*dealt, strict=True) for batch in together] == whole[: rounds * ranks]


def test_a_round_over_several_pools_is_left_out_by_all_ranks() -> None:
    lengths = np.full(100, 10)  # five pools of one batch each
    parts = [listed(lengths, BatchSize(padded_steps=300), rank=rank, ranks=3, drop_last=True) for rank in range(3)]
    assert [len(epoch_of(part, 0)) for part in parts] == [1, 1, 1]


@given(LENGTHS, SIZES, st.integers(1, 4))
def test_a_batch_is_found_by_its_number(lengths: np.ndarray, size: BatchSize, ranks: int) -> None:
    drafts = listed(lengths, size, rank=ranks - 1, ranks=ranks)
    for epoch in range(2):
        found = [rows(drafts.at(epoch, number)) for number in reversed(range(drafts.count(epoch)))]
        assert found[::-1] == epoch_of(drafts, epoch)


def test_a_number_that_no_batch_has_is_refused() -> None:
    with pytest.raises(LowtideError, match="batch 3 of 3"):
        listed(log_normal(30), BatchSize(count=10)).at(0, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"pool": 99},
        {"taken": "1"},
        {"before": 1.0},
        {"deals": []},
        {"deals": 3},
        {"deals": [3]},
        {"deals": [[0, 0]]},
        {"deals": [[0, 1, 2]]},
        {"deals": [[-1, 1]]},
        {"more": 1},
    ],
)
def test_a_state_that_is_no_position_is_refused(change: dict[str, object]) -> None:
    drafts = listed(np.array([3, 5, 8]), BatchSize(count=2))
    assert drafts.adopt(drafts.start(2)) == drafts.start(2)
    with pytest.raises(LowtideError, match="no place between batches"):
        drafts.adopt({**drafts.start(2), **change})
    with pytest.raises(LowtideError, match="no place between batches"):
        drafts.adopt(None)  # type: ignore[arg-type]  # as a file may hold it


@given(LENGTHS, SIZES, st.integers(0, 2))
def test_no_batch_has_more_rows_than_are_told(lengths: np.ndarray, size: BatchSize, epoch: int) -> None:
    drafts = listed(lengths, size)
    assert max(len(batch) for batch in epoch_of(drafts, epoch)) <= drafts.most_rows()
