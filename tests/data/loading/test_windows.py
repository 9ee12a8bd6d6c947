"""Windows cover their sequences, computed from their numbers alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.windows import WindowItems, Windows, label_of
from lowtide.errors import LowtideError
from tests.data.loading_cases import LABELLED, SCHEMA

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=30).map(lambda lengths: np.asarray(lengths, np.int64))


def windows_of(length: int, size: int, stride: int) -> list[tuple[int, int]]:
    """By hand: a window every `stride` steps until one reaches the end."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < length and not (found and found[-1][1] == length):
        found.append((start, min(start + size, length)))
        start += stride
    return found


@given(LENGTHS, st.integers(1, 15), st.integers(1, 20))
def test_windows_are_those_found_by_hand(lengths: np.ndarray, size: int, stride: int) -> None:
    items = WindowItems(lengths, size, stride)
    expected = [
        (sequence, start, stop)
        for sequence, length in enumerate(lengths.tolist())
        for start, stop in windows_of(length, size, stride)
    ]
    numbers = np.arange(items.count)
    spans = items.spans(numbers, 0)
    assert list(zip(spans.sequence.tolist(), spans.start.tolist(), spans.stop.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(items.lengths(numbers), spans.lengths)
    counts = np.bincount([sequence for sequence, _, _ in expected], minlength=len(lengths))
    np.testing.assert_array_equal(items.parts(np.arange(len(lengths))), counts)
    if expected:
        assert items.lengths(numbers)[items.longest()] == items.lengths(numbers).max()


@given(LENGTHS, st.integers(1, 15), st.data())
def test_a_window_is_found_in_any_order(lengths: np.ndarray, size: int, data: st.DataObject) -> None:
    items = WindowItems(lengths, size, size)
    if not items.count:
        return
    numbers = np.asarray(data.draw(st.lists(st.integers(0, items.count - 1), min_size=1)))
    every, some = items.spans(np.arange(items.count), 0), items.spans(numbers, 3)
    np.testing.assert_array_equal(some.start, every.start[numbers])
    np.testing.assert_array_equal(some.stop, every.stop[numbers])


def test_what_is_split_is_counted() -> None:
    assert WindowItems(np.asarray([10, 0, 11, 30]), 10, 10, split=True).report.split == 2
    assert WindowItems(np.asarray([10, 0, 11, 30]), 10, 10).report.split == 0


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": 2.0},
        {"size": 4, "stride": 0},
        {"size": 4, "stride": 2, "separator": 1},
        {"size": 4, "label": "first"},
        {"size": 4, "field": "x"},
    ],
)
def test_what_is_no_way_to_cut_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LowtideError, match="Windows"):
        Windows(**options)


def test_the_label_follows_the_targets_unless_it_is_told() -> None:
    assert label_of(None, SCHEMA.targets) == "step"
    assert label_of("last", SCHEMA.targets) == "last"
    assert label_of(None, LABELLED.targets) == "inherit"
    assert label_of(None, ()) == "step"
    both = (*SCHEMA.targets, replace(LABELLED.targets[0]))
    assert label_of(None, both) == "step"


@pytest.mark.parametrize(
    ("label", "targets"), [("inherit", SCHEMA.targets), ("inherit", ()), ("last", LABELLED.targets)]
)
def test_a_label_that_the_targets_have_not_is_refused(label: Any, targets: Any) -> None:  # noqa: ANN401 - drawn
    with pytest.raises(LowtideError, match="label="):
        label_of(label, targets)
