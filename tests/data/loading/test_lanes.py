"""Lanes hold every step once, in order, and say where a sequence begins."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.buckets import Rounding
from lowtide.data.loading.drafts import Draft
from lowtide.data.loading.lanes import LaneList, Lanes
from lowtide.data.loading.policy import SequenceItems
from lowtide.errors import LowtideError

LENGTHS = st.lists(st.integers(1, 30), min_size=6, max_size=40).map(lambda lengths: np.asarray(lengths, np.int64))
COUNTS = st.integers(1, 6)
STEPS = st.integers(1, 12)


def lane_list(lengths: np.ndarray, lanes: Lanes, *, rank: int = 0, ranks: int = 1, shuffle: bool = True) -> LaneList:
    return LaneList(SequenceItems(lengths), lanes, Rounding(), seed=2, shuffle=shuffle, rank=rank, ranks=ranks)


def epoch_of(drafts: LaneList, epoch: int = 0) -> list[Draft]:
    return [draft for draft, _ in drafts.after(drafts.start(epoch))]


def told(draft: Draft) -> tuple[Any, ...]:
    spans = draft.spans
    assert draft.begins is not None
    return (*(part.tolist() for part in (spans.sequence, spans.start, spans.stop, draft.begins)), draft.steps)


@given(LENGTHS, COUNTS, STEPS, st.booleans())
def test_each_lane_goes_on_where_it_ended_and_every_step_comes_once(
    lengths: np.ndarray, count: int, steps: int, shuffle: bool
) -> None:
    drafts = lane_list(lengths, Lanes(count, steps), shuffle=shuffle)
    batches = epoch_of(drafts)
    assert len(batches) == drafts.count(0)
    seen: set[int] = set()
    for lane in range(count):
        at = (-1, 0)
        for draft in batches:
            sequence, start, stop, begins = (part[lane] for part in told(draft)[:4])
            if sequence < 0:
                assert start == stop == 0
                assert not begins
                continue
            assert begins == (sequence not in seen)
            assert (sequence, start) == (at if not begins else (sequence, 0))
            assert stop == min(start + steps, lengths[sequence])
            if begins:
                assert at[0] < 0 or at[1] == lengths[at[0]]
            seen.add(sequence)
            at = (sequence, stop)
        assert at[0] < 0 or at[1] == lengths[at[0]]
    assert seen == set(range(len(lengths)))


@given(LENGTHS, STEPS, st.sampled_from([1, 2, 3, 6]))
def test_ranks_have_the_same_lanes_between_them(lengths: np.ndarray, steps: int, ranks: int) -> None:
    whole = [told(draft) for draft in epoch_of(lane_list(lengths, Lanes(6, steps)))]
    parts = [
        [told(draft) for draft in epoch_of(lane_list(lengths, Lanes(6, steps), rank=rank, ranks=ranks))]
        for rank in range(ranks)
    ]
    assert {len(part) for part in parts} == {len(whole)}
    for number, expected in enumerate(whole):
        for place in range(4):
            assert [value for part in parts for value in part[number][place]] == expected[place]


@given(LENGTHS, COUNTS, STEPS, st.data())
def test_going_on_from_any_place_gives_the_same_batches(
    lengths: np.ndarray, count: int, steps: int, data: st.DataObject
) -> None:
    drafts = lane_list(lengths, Lanes(count, steps))
    epoch = data.draw(st.integers(0, 2))
    whole = [told(draft) for draft in epoch_of(drafts, epoch)]
    positions = [drafts.start(epoch), *(after for _, after in drafts.after(drafts.start(epoch)))]
    taken = data.draw(st.integers(0, len(whole)))
    again = lane_list(lengths, Lanes(count, steps))
    position = again.adopt(json.loads(json.dumps(positions[taken])))
    assert [told(draft) for draft, _ in again.after(position)] == whole[taken:]


def test_no_lane_waits_while_there_are_sequences() -> None:
    batches = [told(draft) for draft in epoch_of(lane_list(np.asarray([100, *[10] * 20]), Lanes(3, 10), shuffle=False))]
    assert len(batches) == 10
    assert sum(sequence >= 0 for batch in batches for sequence in batch[0]) == 30


def test_epochs_have_orders_of_their_own() -> None:
    drafts = lane_list(np.full(50, 5), Lanes(2, 5))
    first, second = ([told(draft)[0] for draft in epoch_of(drafts, epoch)] for epoch in range(2))
    assert first != second


@pytest.mark.parametrize(("count", "ranks", "said"), [(4, 3, "4 lanes for 3 ranks"), (9, 1, "9 lanes for 8 items")])
def test_lanes_that_do_not_come_out_even_are_refused(count: int, ranks: int, said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        lane_list(np.full(8, 5), Lanes(count, 5), ranks=ranks)


def test_a_state_of_other_lanes_is_refused() -> None:
    drafts = lane_list(np.full(8, 5), Lanes(4, 5))
    with pytest.raises(LowtideError, match="state of 2 lanes was given to 4"):
        drafts.adopt(lane_list(np.full(8, 5), Lanes(2, 5)).start(0))


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": "0"},
        {"next": None},
        {"items": 4},
        {"items": [-1, -1, -1, 8]},
        {"items": [-2, -1, -1, -1]},
        {"done": [0, 0, 0]},
        {"done": [0, 0, 0, -5]},
        {"more": 1},
    ],
)
def test_a_state_that_is_no_position_is_refused(change: dict[str, object]) -> None:
    drafts = lane_list(np.full(8, 5), Lanes(4, 5))
    assert drafts.adopt(drafts.start(0)) == drafts.start(0)
    with pytest.raises(LowtideError, match="no place between batches"):
        drafts.adopt({**drafts.start(0), **change})


@pytest.mark.parametrize("options", [{"count": 0, "steps": 4}, {"count": 4, "steps": 0}, {"count": 4, "steps": 2.0}])
def test_lanes_that_are_no_numbers_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LowtideError, match="Lanes"):
        Lanes(**options)
