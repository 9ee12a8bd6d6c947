"""Ingestion as a whole: what it reports, and how it splits, fits and fills."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lowtide.data.ingest import ingest
from lowtide.data.ingestion.progress import Progress
from lowtide.data.splitting.rules import ByTime
from tests.data.ingesting_cases import content, dropped, filled, long_table, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": ["x"]}


def test_the_report_says_what_happened_and_the_manifest_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.DataFrame({"u": [1, 1, 2, 3], "t": [1, 2, 1, 1], "x": [0.1, np.nan, np.nan, 5.0]})
    store = ingest(table, tmp_path / "store", **ASKED, missing="drop")
    told = capsys.readouterr()
    assert told.out == ""
    assert "2 sequences, 2 steps" in told.err
    assert "dropped 2 steps without 'x'" in told.err
    assert "dropped 1 sequences without a step" in told.err
    assert 'dtypes={"x": "float16"}' in told.err
    notes = store.manifest.notes["ingests"][0]
    assert notes["dropped"] == {"steps without 'x'": 2, "sequences without a step": 1}
    assert notes["missing"] == {"x": "drop"}
    error = abs(float(np.float16(0.1)) - float(np.float32(0.1)))
    assert notes["float16"]["x"] == {
        "saves": 4,
        "largest_error": pytest.approx(error),
        "at": pytest.approx(0.1),
        "fits": True,
    }


def test_no_word_is_said_where_none_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quietly([{"x": [1.0]}], tmp_path / "store")
    assert capsys.readouterr() == ("", "")


def test_progress_counts_every_step_and_ends_with_done(tmp_path: Path) -> None:
    seen: list[Progress] = []
    path = tmp_path / "a.parquet"
    long_table(30, 10).to_parquet(path)
    store = ingest(path, tmp_path / "store", **ASKED, progress=seen.append)
    assert seen[-1].phase == "done"
    assert seen[-1].rows == seen[-1].total_rows == store.lengths.sum() == 300
    assert seen[-1].bytes == 4 * 300
    assert seen[-1].source_bytes == path.stat().st_size


def test_a_line_is_shown_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ingest(long_table(3, 3), tmp_path / "store", **ASKED, progress=True)
    assert "\rlowtide.ingest: " in capsys.readouterr().err


def test_splits_by_sequence_are_made_with_the_store(tmp_path: Path) -> None:
    store = quietly(long_table(50, 2), tmp_path / "store", **ASKED, split={"train": 0.8, "test": 0.2})
    train, test = store.split("train"), store.split("test")
    assert len(train) + len(test) == 50
    assert not set(train.ids) & set(test.ids)


def test_splits_by_time_cut_at_values_of_the_order_column(tmp_path: Path) -> None:
    table = long_table(3, 10)
    table["t"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["t"], unit="D")
    rule = ByTime(until={"train": datetime(2024, 1, 8), "test": None})  # noqa: DTZ001 - as the column
    store = quietly(table, tmp_path / "store", **ASKED, split=rule)
    assert store.split("train").lengths.tolist() == [7, 7, 7]
    assert store.split("test").lengths.tolist() == [3, 3, 3]


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_split_by_time_leaves_no_target_of_one_part_in_another(tmp_path: Path, horizon: int) -> None:
    rule = ByTime(until={"train": 14, "test": None})
    store = quietly(long_table(2, 20), tmp_path / "store", **ASKED, split=rule, horizon=horizon)
    for sequence in (0, 1):
        train = store.split("train")[sequence]
        assert np.asarray(train.targets).max() < 100 * sequence + 14
        assert np.asarray(store.split("test")[sequence].inputs).min() >= 100 * sequence + 14


def test_a_series_cut_by_chunks_is_split_as_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.ingestion.sources.long_table._MOST_ROWS", 7)
    monkeypatch.setattr("lowtide.data.ingestion.sources.long_table._LEAST_ROWS", 1)
    table = pd.DataFrame({"t": np.arange(5000), "x": np.arange(5000.0)})
    rule = ByTime(until={"train": 4000, "test": None})
    store = quietly(table, tmp_path / "store", order="t", inputs="x", split=rule)
    assert store.split("train").lengths.tolist() == [4000]


def test_a_split_by_values_of_time_needs_an_order(tmp_path: Path) -> None:
    with refused(tmp_path, "no order column"):
        rule = ByTime(until={"train": 5, "test": None})
        quietly(long_table(2, 10), tmp_path / "store", sequence="u", inputs="x", split=rule)


def test_transforms_are_fitted_to_the_training_part_alone(tmp_path: Path) -> None:
    table = long_table(40, 5)
    split = {"train": 0.5, "test": 0.5}
    first = quietly(table, tmp_path / "first", **ASKED, split=split, transforms={"x": "standard"})
    testing = set(first.split("test").ids)
    table.loc[table["u"].isin(testing), "x"] *= 1e6
    second = quietly(table, tmp_path / "second", **ASKED, split=split, transforms={"x": "standard"})
    assert [made.to_json() for made in first.transforms] == [made.to_json() for made in second.transforms]
    assert first.transforms
    training = np.concatenate([np.asarray(sequence.inputs) for sequence in first.split("train")])
    scaled = first.transforms[0].apply(training)
    assert abs(float(scaled.mean())) < 1e-4


def test_transforms_of_a_split_by_time_do_not_look_behind_the_cut(tmp_path: Path) -> None:
    table = long_table(1, 100)
    rule = ByTime(fractions={"train": 0.5, "test": 0.5})
    first = quietly(table, tmp_path / "first", **ASKED, split=rule, transforms="minmax")
    table.loc[table["t"] >= 50, "x"] = 1e9
    second = quietly(table, tmp_path / "second", **ASKED, split=rule, transforms="minmax")
    assert [made.to_json() for made in first.transforms] == [made.to_json() for made in second.transforms]


def test_means_are_those_of_the_training_part(tmp_path: Path) -> None:
    table = long_table(40, 5)
    split = {"train": 0.5, "test": 0.5}
    whole = quietly(table, tmp_path / "whole", **ASKED, split=split)
    training = table[table["u"].isin(set(whole.split("train").ids))]
    gone = training.index[:7]
    expected = training.drop(gone)["x"].mean()
    table.loc[gone, "x"] = np.nan
    table.loc[table["u"].isin(set(whole.split("test").ids)) & (table["t"] == 0), "x"] = 1e6
    store = quietly(table, tmp_path / "store", **ASKED, split=split, missing="mean")
    assert filled(store) == {"missing values of 'x' (mean)": 7}
    assert store.manifest.notes["ingests"][0]["means"] == {"x": pytest.approx(expected)}
    values = {name: np.array(fields["x"])[:, 0] for name, fields in content(store).items()}
    for row in gone:
        name, step = table.loc[row, ["u", "t"]].astype(int)
        assert values[name][step] == pytest.approx(expected, rel=1e-6)
    assert list(store.split("train").ids) == list(whole.split("train").ids)


def test_a_column_without_any_value_has_no_mean(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [1], "t": [1], "x": [np.nan]})
    with refused(tmp_path, "'x' has no value in the training part"):
        quietly(table, tmp_path / "store", **ASKED, missing="mean")


def test_duplicates_are_counted_in_the_notes(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [1, 1, 1], "t": [1, 1, 2], "x": [1.0, 2.0, 3.0]})
    store = quietly(table, tmp_path / "store", **ASKED, duplicates="last")
    assert content(store) == {1: {"x": [[2.0], [3.0]]}}
    assert list(dropped(store).values()) == [1]


@pytest.mark.parametrize("machine", ["UTC", "Asia/Tokyo"])
def test_times_with_a_zone_are_cut_alike_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setenv("TZ", machine)
    times = pd.date_range("2024-01-01", periods=48, freq="h", tz="America/New_York")
    table = pd.DataFrame({"t": times, "x": range(48)})
    split = ByTime(until={"train": "2024-01-02", "test": None})
    store = quietly(table, tmp_path / "store", order="t", inputs="x", split=split)
    assert store.split("train").lengths.tolist() == [19]


def test_transforms_of_inputs_that_have_none_to_transform_are_refused(tmp_path: Path) -> None:
    with refused(tmp_path, "none of which holds floating-point numbers"):
        quietly([{"x": [1, 2]}], tmp_path / "store", dtypes="int8", transforms="standard")
