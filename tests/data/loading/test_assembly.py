"""Settings and a view become the items, the order and the weights that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide.data import Store
from lowtide.data.ingest import ingest
from lowtide.data.loading.assembly import collator_of, drafts_of, items_of, items_of_lengths
from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.policy import PolicyReport
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError
from tests.data.loading_cases import LABELLED, SCHEMA, told

LENGTHS = [4, 0, 9, 30, 2]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS, tmp_path_factory.mktemp("assembly") / "steps", SCHEMA)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS, tmp_path_factory.mktemp("assembly") / "labelled", LABELLED)


@pytest.mark.parametrize(
    ("options", "report"),
    [
        ({}, PolicyReport(5, 4, empty=1)),
        ({"max_length": 8}, PolicyReport(5, 4, empty=1, cut=2)),
        ({"max_length": 8, "over_length": "drop"}, PolicyReport(5, 2, empty=1, dropped=2)),
        ({"max_length": 8, "over_length": "split"}, PolicyReport(5, 8, empty=1, split=2)),
        ({"max_padded_steps": 20, "over_length": "drop"}, PolicyReport(5, 3, empty=1, dropped=1)),
        ({"max_padded_steps": 20, "over_length": "split", "round_lengths": 8}, PolicyReport(5, 5, empty=1, split=1)),
        ({"max_padded_steps": 20, "max_length": 16, "round_lengths": 8}, PolicyReport(5, 4, empty=1, cut=1)),
        ({"windows": Windows(10, 5)}, PolicyReport(5, 8, empty=1)),
    ],
)
def test_sequences_become_the_items_asked_for(options: dict[str, Any], report: PolicyReport) -> None:
    assert items_of_lengths(np.asarray(LENGTHS), LoaderSettings(**options)).report == report


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_padded_steps": 20}, "1 of 5 sequences are longer than max_padded_steps=20"),
        ({"max_padded_steps": 30, "round_lengths": 16}, "longer than max_padded_steps=30"),
        ({"max_length": 8, "over_length": "error"}, "2 of 5 sequences are longer than max_length=8"),
        ({"max_length": 30, "max_padded_steps": 20}, "at most 20 steps fit"),
        ({"max_padded_steps": 20, "round_lengths": [32]}, "at most 0 steps fit"),
        ({"windows": Windows(21), "max_padded_steps": 20}, "windows of 21 steps where 20 fit"),
        ({"max_length": 1, "over_length": "drop"}, "no batch comes of 0 items"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        items_of_lengths(np.asarray(LENGTHS), LoaderSettings(**options))


@pytest.mark.parametrize(
    "options", [{"batch_size": 5}, {"batch_size": 2, "ranks": 3}, {"max_padded_steps": 1000, "ranks": 2}]
)
def test_settings_of_which_no_full_round_comes_are_refused(options: dict[str, Any]) -> None:
    settings = LoaderSettings(drop_last=True, **options)
    items = items_of_lengths(np.asarray(LENGTHS), settings)
    with pytest.raises(LowtideError, match="no batch comes of 4 items"):
        drafts_of(items, settings)


def test_an_item_beyond_all_sizes_is_refused() -> None:
    settings = LoaderSettings(round_lengths=[8, 16])
    with pytest.raises(LowtideError, match="the longest item has 30 steps"):
        drafts_of(items_of_lengths(np.asarray(LENGTHS), settings), settings)


def batch_of(store: Store, **options: Any) -> Any:  # noqa: ANN401 - as a user gives them
    settings = LoaderSettings(framework="numpy", shuffle=False, **options)
    items = items_of(store, settings)
    drafts = drafts_of(items, settings)
    draft, _ = next(drafts.after(drafts.start(0)))
    return collator_of(store, items, settings)(draft)


def test_windows_of_an_inherited_label_weigh_one_sequence_together(labelled: Store) -> None:
    batch = batch_of(labelled, windows=Windows(10, 5))
    totals = {number: batch.weight[batch.index == number].sum() for number in (0, 2, 3, 4)}
    assert totals == pytest.approx(dict.fromkeys(totals, 1))
    np.testing.assert_array_equal(batch.targets, batch.index % 3)


def test_parts_of_split_sequences_weigh_one_sequence_together(labelled: Store) -> None:
    batch = batch_of(labelled, max_length=8, over_length="split")
    assert batch.weight[batch.index == 3].tolist() == [0.25] * 4


def test_windows_with_targets_of_their_own_weigh_alike(steps: Store, labelled: Store) -> None:
    assert batch_of(steps, windows=Windows(10, 5)).weight is None
    assert batch_of(labelled).weight is None
    last = batch_of(steps, windows=Windows(10, 5, label="last"))
    np.testing.assert_array_equal(last.targets, (last.index + last.start + last.lengths - 1) % 7)


def test_weights_multiply(labelled: Store) -> None:
    batch = batch_of(labelled, windows=Windows(10, 5), weights=[1, 1, 1, 5, 1], balance="label")
    assert batch.weight[batch.index == 3].sum() == pytest.approx(5 * 4 / (3 * 2))


def test_lanes_need_targets_per_step(steps: Store, labelled: Store) -> None:
    assert batch_of(steps, lanes=Lanes(2, 5)).size == 2
    with pytest.raises(LowtideError, match="lanes, and targets per sequence"):
        batch_of(labelled, lanes=Lanes(2, 5))


def test_parts_of_a_sequence_are_never_scaled_each_by_itself(tmp_path: Path) -> None:
    given = ({"id": number, "x": np.full((9, 2), number, np.float32), "y": np.arange(9.0)} for number in range(4))
    scaled = ingest(given, tmp_path / "store", transforms={"x": "per_sequence", "y": "per_sequence"}, progress=False)
    assert batch_of(scaled, batch_size=4).size == 4
    with pytest.raises(LowtideError, match="lanes cut a sequence into chunks"):
        batch_of(scaled, lanes=Lanes(2, 5))
    with pytest.raises(LowtideError, match="takes one step of it"):
        batch_of(scaled, windows=Windows(5, 5, label="last"))
