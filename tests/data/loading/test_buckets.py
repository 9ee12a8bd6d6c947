"""Batches of nearly equal lengths: full, within their limit, with little padding and changing company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.buckets import BatchSize, Rounding, grouped, padded_steps
from lowtide.data.loading.order import Ints, Permutation, hashes, key_of
from lowtide.errors import LowtideError
from tests.data.loading_cases import log_normal

ANY = Rounding()
LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=300).map(lambda lengths: np.asarray(lengths, np.int64))


def drawn(count: int, key: int = 0) -> np.ndarray:
    return hashes(key, np.arange(count))


def shared_again(first: Ints, second: Ints) -> float:
    """Of the pairs in one batch of the first epoch, the part that is in one batch of the second, by batch numbers."""

    def pairs(batches: Ints) -> int:
        counts = np.unique(batches, return_counts=True)[1]
        return int((counts * (counts - 1)).sum())

    return pairs(first * (second.max() + 1) + second) / pairs(first)


def epoch_of(lengths: Ints, epoch: int, size: BatchSize) -> tuple[Ints, float]:
    """The number of every sequence's batch, and the part of all steps that is padding."""
    items = Permutation(len(lengths), key_of(0, epoch))(np.arange(len(lengths)))
    shuffled = lengths[items]
    order, cuts = grouped(shuffled, hashes(key_of(1, epoch), items), size, ANY, full_longest=epoch == 0)
    batches = np.empty(len(lengths), np.int64)
    batches[items[order]] = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    return batches, 1 - lengths.sum() / padded_steps(shuffled, order, cuts, ANY).sum()


@given(LENGTHS, st.integers(1, 70), st.booleans())
def test_batches_by_count_are_full_but_for_one(lengths: np.ndarray, count: int, full_longest: bool) -> None:
    order, cuts = grouped(lengths, drawn(len(lengths)), BatchSize(count=count), ANY, full_longest=full_longest)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(lengths)))
    sizes = np.diff(cuts)
    assert (cuts[0], cuts[-1]) == (0, len(lengths))
    assert (sizes > 0).all()
    assert np.sum(sizes != count) == (1 if len(lengths) % count else 0)
    assert len(sizes) == -(-len(lengths) // count)
    if len(lengths) >= count and full_longest:
        assert sizes[0] == count


@given(LENGTHS, st.integers(200, 2000), st.integers(1, 7))
def test_no_batch_by_steps_exceeds_them(lengths: np.ndarray, most: int, multiple: int) -> None:
    rounding = Rounding.of(multiple)
    most += 7
    size = BatchSize(padded_steps=most)
    order, cuts = grouped(lengths, drawn(len(lengths)), size, rounding, full_longest=True)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(lengths)))
    padded = padded_steps(lengths, order, cuts, rounding)
    assert (padded <= most).all()


@given(LENGTHS, st.integers(200, 900))
def test_nor_does_a_run_of_lengths_in_any_order(lengths: np.ndarray, most: int) -> None:
    cuts = BatchSize(padded_steps=most).cuts(lengths, short_first=False)
    assert (cuts[0], cuts[-1]) == (0, len(lengths))
    assert (np.diff(cuts) > 0).all()
    assert (np.maximum.reduceat(lengths, cuts[:-1]) * np.diff(cuts) <= most).all()


@pytest.mark.parametrize("seed", range(3))
def test_on_log_normal_lengths_little_is_padded_and_company_changes(seed: int) -> None:
    lengths = log_normal(100_000, seed)
    epochs = [epoch_of(lengths, epoch, BatchSize(count=64)) for epoch in range(4)]
    assert np.mean([padding for _, padding in epochs]) < 0.04
    again = [shared_again(epochs[epoch][0], epochs[epoch + 1][0]) for epoch in range(3)]
    assert max(again) < 0.08


def test_by_steps_as_little_is_padded() -> None:
    lengths = log_normal(100_000)
    epochs = [epoch_of(lengths, epoch, BatchSize(padded_steps=8192)) for epoch in range(2)]
    assert max(padding for _, padding in epochs) < 0.04
    # Batches of the shortest hold thousands of them.
    assert shared_again(epochs[0][0], epochs[1][0]) < 0.2


def test_equal_lengths_meet_at_random() -> None:
    lengths = np.full(64 * 100, 30)
    first, second = (epoch_of(lengths, epoch, BatchSize(count=64))[0] for epoch in range(2))
    assert shared_again(first, second) == pytest.approx(0.01, abs=0.002)


def test_long_sequences_and_huge_ones_keep_their_order() -> None:
    lengths = np.asarray([1 << 38, 5, 1 << 39, 7], np.int64)
    order, _ = grouped(lengths, drawn(4), BatchSize(count=2), ANY, full_longest=True)
    assert order[:2].tolist() == [2, 0]


@given(LENGTHS, st.one_of(st.integers(1, 60), st.lists(st.integers(1, 200), min_size=1, max_size=5)))
def test_lengths_are_rounded_up_to_the_next_allowed_one(lengths: np.ndarray, asked: int | list[int]) -> None:
    rounding = Rounding.of(asked)
    if isinstance(asked, list):
        lengths = np.minimum(lengths, max(asked))
    rounded = rounding(lengths)
    allowed = set(asked) if isinstance(asked, list) else {number * asked for number in range(1, 201)}
    for length, to in zip(lengths.tolist(), rounded.tolist(), strict=True):
        assert to == min(size for size in allowed if size >= length)
    for steps in (1, 59, 200):
        within = rounding.largest_within(steps)
        assert within == max((size for size in allowed if size <= steps), default=0)


def test_a_length_beyond_the_largest_size_is_refused() -> None:
    Rounding.of([8, 16]).check(16)
    with pytest.raises(LowtideError, match="17 steps, the largest of round_lengths is 16"):
        Rounding.of([8, 16]).check(17)
    Rounding.of(8).check(17)


@pytest.mark.parametrize(
    ("asked", "meant"), [(np.int64(8), 8), (np.array(8), 8), (np.array([16, 8]), [8, 16]), ((16, np.int8(8)), [8, 16])]
)
def test_sizes_may_be_numpys(asked: Any, meant: Any) -> None:  # noqa: ANN401 - drawn
    assert Rounding.of(asked) == Rounding.of(meant)


@pytest.mark.parametrize("asked", [0, -4, [], [8, 0], [2.5], True, 2.5, "64", [[8], [16, 32]]])
def test_sizes_that_are_no_numbers_are_refused(asked: object) -> None:
    with pytest.raises(LowtideError, match="round_lengths"):
        Rounding.of(asked)  # type: ignore[arg-type]  # as a user might
