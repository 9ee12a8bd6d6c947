"""Means are those of the training part alone: with a horizon, with sequences in pieces, and when more is appended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lowtide.data import ByIds, ByTime, Store
from lowtide.data.ingest import ingest
from lowtide.data.ingestion.progress import Progress
from tests.data.ingesting_cases import content, filled, quietly

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x", "missing": "mean"}
NAN = float("nan")
FIRST_TRAINS = ByIds({"train": [0], "test": [1]})


def table(first: list[float], second: list[float]) -> pd.DataFrame:
    values = [*first, *second]
    times = [*range(len(first)), *range(len(second))]
    return pd.DataFrame({"u": [0] * len(first) + [1] * len(second), "t": times, "x": values})


def means(store: Store) -> dict[str, float]:
    found: dict[str, float] = store.manifest.notes["ingests"][-1]["means"]
    return found


def test_inputs_and_the_targets_shifted_from_them_get_one_mean(tmp_path: Path) -> None:
    store = quietly(table([1, NAN, 3, NAN], [9, NAN, 9]), tmp_path / "store", **ASKED, horizon=1, split=FIRST_TRAINS)
    assert content(store) == {0: {"x": [1, 2, 3], "y": [2, 3, 2]}, 1: {"x": [9, 2], "y": [2, 9]}}
    assert filled(store) == {"missing values of 'x' (mean)": 3}


def test_a_target_of_its_own_gets_its_own_mean(tmp_path: Path) -> None:
    rows = table([1, NAN, 3, 5], [9, 9]).assign(z=[7.0, NAN, 4.0, 6.0, 0.0, 0.0])
    store = quietly(rows, tmp_path / "store", **ASKED, target="z", horizon=1, split=FIRST_TRAINS)
    assert content(store)[0] == {"x": [1, 2, 3], "y": [5, 4, 6]}
    assert means(store) == {"x": 2, "z": 5}


@pytest.mark.parametrize("horizon", [0, 2])
def test_what_lies_behind_the_cut_moves_no_mean(tmp_path: Path, horizon: int) -> None:
    made = []
    for number, late in enumerate([5.0, 1e6]):
        rows = table([1, NAN, 3, 2, 4, late, late, late, late], [4, 6, NAN, 2, 4, late, late, late, late])
        split = ByTime(until={"train": 5, "test": None})
        made.append(means(quietly(rows, tmp_path / str(number), **ASKED, horizon=horizon, split=split)))
    assert made[0] == made[1]


def test_sequences_in_several_pieces_are_filled_in_all_of_them(tmp_path: Path) -> None:
    steps = 150_000
    values = np.arange(steps, dtype=np.float64)
    gone = [0, 100, (1 << 16) - 1, 1 << 16, (1 << 17) - 1, 1 << 17, steps - 1]
    values[gone] = np.nan
    store = quietly(table(values.tolist(), [5.0, NAN, 5.0]), tmp_path / "store", **ASKED, horizon=2, split=FIRST_TRAINS)
    mean = float(np.nanmean(values[:-2]))
    whole = np.where(np.isnan(values), mean, values).astype(np.float32)
    assert np.array_equal(np.asarray(store[0].inputs), whole[:-2])
    assert np.array_equal(np.asarray(store[0].targets), whole[2:])
    assert filled(store) == {"missing values of 'x' (mean)": len(gone) + 1}


def test_progress_ends_with_as_many_steps_as_there_are(tmp_path: Path) -> None:
    seen: list[Progress] = []
    rows = table([1, NAN, 3], [4])
    ingest(rows, tmp_path / "store", **ASKED, progress=seen.append)
    assert (seen[-1].phase, seen[-1].rows) == ("done", 4)
    assert all(progress.rows <= 4 for progress in seen)


@pytest.mark.parametrize("split", [None, FIRST_TRAINS])
def test_an_append_takes_the_mean_of_the_training_part_that_is_there(tmp_path: Path, split: ByIds | None) -> None:
    out = tmp_path / "store"
    asked = {**ASKED, "missing": "error"}
    quietly(table([1, 2, 3], [10, 20, 30]), out, **asked, split=split)
    for number in (2, 3):
        more = pd.DataFrame({"u": number, "t": [0, 1], "x": [NAN, 1e6]})
        rule = None if split is None else ByIds({"train": [number], "test": []})
        store = quietly(more, out, **ASKED, append=True, split=rule)
        assert content(store)[number]["x"] == [11.0 if split is None else 2.0, 1e6]


def test_an_append_knows_the_means_of_a_field_of_several_columns(tmp_path: Path) -> None:
    out = tmp_path / "store"
    asked = {**ASKED, "inputs": ["a", "b"], "missing": {"x": "mean"}}
    quietly(pd.DataFrame({"u": 0, "t": [0, 1], "a": [1.0, NAN], "b": [5.0, 7.0]}), out, **asked)
    store = quietly(pd.DataFrame({"u": [1], "t": [0], "a": [NAN], "b": [NAN]}), out, **asked, append=True)
    assert content(store)[1] == {"x": [[1.0, 6.0]]}
