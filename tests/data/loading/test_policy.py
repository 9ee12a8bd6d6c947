"""Items are the parts of sequences that were asked for, and what is left out is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading import policy
from lowtide.data.loading.policy import Cut, PolicyReport, SequenceItems, refuse_longer
from lowtide.errors import LowtideError

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=40).map(lambda lengths: np.asarray(lengths, np.int64))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BLOCK", 7)


def all_spans(items: SequenceItems, epoch: int = 0) -> list[tuple[int, int, int]]:
    spans = items.spans(np.arange(items.count), epoch)
    return list(zip(spans.sequence.tolist(), spans.start.tolist(), spans.stop.tolist(), strict=True))


@given(LENGTHS)
def test_whole_sequences_are_all_used_but_those_without_steps(lengths: np.ndarray) -> None:
    items = SequenceItems(lengths)
    expected = [(number, 0, length) for number, length in enumerate(lengths.tolist()) if length]
    assert all_spans(items) == expected
    assert items.report == PolicyReport(len(lengths), len(expected), empty=len(lengths) - len(expected))
    np.testing.assert_array_equal(items.parts(np.arange(len(lengths))), lengths > 0)


@given(LENGTHS, st.integers(1, 30), st.sampled_from(["head", "tail", "random"]), st.integers(0, 5))
def test_a_cut_sequence_keeps_as_many_steps_as_allowed(lengths: np.ndarray, limit: int, cut: Cut, epoch: int) -> None:
    items = SequenceItems(lengths, limit=limit, cut=cut)
    for number, start, stop in all_spans(items, epoch):
        assert 0 <= start < stop <= lengths[number]
        assert stop - start == min(lengths[number], limit)
        assert cut != "head" or start == 0
        assert cut != "tail" or stop == lengths[number]
    assert items.report.cut == np.sum(lengths > limit)
    kept = np.arange(items.count)
    np.testing.assert_array_equal(items.lengths(kept), items.spans(kept, epoch).lengths)


def test_a_random_cut_is_another_in_each_epoch_and_reaches_every_step() -> None:
    items = SequenceItems(np.full(200, 12), limit=4, cut="random", seed=3)
    starts = np.asarray([[start for _, start, _ in all_spans(items, epoch)] for epoch in range(10)])
    assert set(starts.ravel().tolist()) == set(range(9))
    assert (starts[0] != starts[1]).mean() > 0.7
    np.testing.assert_array_equal(starts[0], [start for _, start, _ in all_spans(items, 0)])


@given(LENGTHS, st.integers(1, 30))
def test_longer_sequences_are_left_out_and_counted(lengths: np.ndarray, most: int) -> None:
    items = SequenceItems(lengths, most=most)
    expected = [(number, 0, length) for number, length in enumerate(lengths.tolist()) if 0 < length <= most]
    assert all_spans(items) == expected
    assert items.report.dropped == np.sum(lengths > most)
    assert items.report.empty == np.sum(lengths == 0)
    np.testing.assert_array_equal(items.parts(np.arange(len(lengths))), (lengths > 0) & (lengths <= most))


@given(LENGTHS, st.integers(1, 30), st.sampled_from(["limit", "most"]))
def test_no_item_is_longer_than_the_longest(lengths: np.ndarray, limit: int, what: str) -> None:
    items = SequenceItems(lengths, limit=limit) if what == "limit" else SequenceItems(lengths, most=limit)
    if items.count:
        every = items.lengths(np.arange(items.count))
        assert every[items.longest()] == every.max()


def test_lengths_beyond_what_is_allowed_are_refused_with_the_longest() -> None:
    refuse_longer(np.asarray([3, 9, 5]), 9, said="max_length=9")
    with pytest.raises(LowtideError, match=r"2 of 3 sequences .* max_length=4 .* number 1, has 9 steps"):
        refuse_longer(np.asarray([3, 9, 5]), 4, said="max_length=4")


def test_a_report_names_what_is_not_zero() -> None:
    assert str(PolicyReport(10, 7, empty=2, dropped=1)) == "7 items of 10 sequences (2 empty, 1 dropped)"
    assert str(PolicyReport(10, 10)) == "10 items of 10 sequences"
