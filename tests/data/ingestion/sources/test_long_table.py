"""Rows in any order, over any files, become the sequences that they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.data.ingestion.sources import long_table
from tests.data.ingesting_cases import content, dropped, quietly, refused

Row = tuple[Any, int, float]
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-50, 50)), min_size=1, max_size=60, unique=True)
ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["u", "t", "x"])


def write_csv(rows: Sequence[Row], path: Path) -> None:
    frame(rows).to_csv(path.with_suffix(".csv"), index=False)


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    frame(rows).to_parquet(path.with_suffix(".parquet"), index=False, row_group_size=7)


def write_jsonl(rows: Sequence[Row], path: Path) -> None:
    frame(rows).to_json(path.with_suffix(".jsonl"), orient="records", lines=True)


def write_arrow(rows: Sequence[Row], path: Path) -> None:
    table = pa.Table.from_pandas(frame(rows), preserve_index=False)
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as file:
        file.write_table(table)


WRITERS = [write_csv, write_parquet, write_jsonl, write_arrow]


def grouped(rows: Sequence[Row]) -> dict[Any, dict[str, list[float]]]:
    """The sequences, the slow way."""
    return {key: {"x": [x for u, _, x in sorted(rows) if u == key]} for key in {row[0] for row in rows}}


@settings(max_examples=25)
@given(keys=ROWS, files=st.integers(1, 3), write=st.sampled_from(WRITERS), batch=st.integers(1, 9), text=st.booleans())
def test_rows_over_files_of_every_format_become_sequences(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[tuple[int, int]],
    files: int,
    write: Callable[[Sequence[Row], Path], None],
    batch: int,
    *,
    text: bool,
) -> None:
    folder = tmp_path_factory.mktemp("long")
    rows = [(f"user {u}" if text else u, t, float(place)) for place, (u, t) in enumerate(keys)]
    for file in range(files):
        if part := rows[file::files]:
            write(part, folder / f"part-{file}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_table, "_MOST_ROWS", batch)
        patch.setattr(long_table, "_LEAST_ROWS", 1)
        store = quietly(folder, folder / "store", **ASKED)
    assert content(store) == grouped(rows)
    assert list(store.ids) == sorted({row[0] for row in rows})
    assert store.schema.id_type == ("string" if text else "int64")


@pytest.mark.parametrize(
    "made", [pd.DataFrame, pl.DataFrame, lambda rows: pa.table(pd.DataFrame(rows).to_dict("list"))]
)
def test_tables_in_memory_become_sequences(tmp_path: Path, made: Callable[[Any], Any]) -> None:
    store = quietly(made({"u": [2, 1, 2], "t": [2, 1, 1], "x": [0.0, 1.0, 2.0]}), tmp_path / "store", **ASKED)
    assert content(store) == {1: {"x": [1.0]}, 2: {"x": [2.0, 0.0]}}


@pytest.mark.parametrize("write", WRITERS)
def test_without_an_order_rows_stay_in_the_order_of_files_and_rows(
    tmp_path: Path, write: Callable[[Sequence[Row], Path], None]
) -> None:
    numbers = np.random.default_rng(0).permutation(9000)
    rows = [(int(number % 7), 0, float(place)) for place, number in enumerate(numbers)]
    for file in range(3):
        write(rows[3000 * file : 3000 * (file + 1)], tmp_path / f"part-{file}")
    store = quietly(tmp_path, tmp_path / "store", sequence="u", inputs="x")
    assert content(store) == {key: {"x": [x for u, _, x in rows if u == key]} for key in range(7)}


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("policy", "kept"), [("first", [0, 3]), ("last", [2, 3]), ("keep", [0, 1, 2, 3])])
def test_rows_with_one_order_go_by_file_and_row(
    tmp_path: Path, write: Callable[[Sequence[Row], Path], None], policy: str, kept: list[float]
) -> None:
    write([(1, 5, 0.0), (1, 5, 1.0)], tmp_path / "a")
    write([(1, 6, 3.0), (1, 5, 2.0)], tmp_path / "b")
    store = quietly(tmp_path, tmp_path / "store", **ASKED, duplicates=policy)
    assert content(store) == {1: {"x": kept}}
    assert sum(dropped(store).values()) == 4 - len(kept)


@pytest.mark.parametrize("write", WRITERS)
def test_rows_with_one_order_are_an_error_that_names_them(
    tmp_path: Path, write: Callable[[Sequence[Row], Path], None]
) -> None:
    write([("a", 4, 0.0), ("b", 5, 1.0)], tmp_path / "one")
    write([("a", 7, 3.0), ("b", 5, 2.0)], tmp_path / "two")
    place = "row" if write is write_arrow else "one"
    with refused(tmp_path, "the sequence 'b' has several rows with t = 5", place, 'duplicates="first"'):
        quietly([*tmp_path.glob("one.*"), *tmp_path.glob("two.*")], tmp_path / "store", **ASKED)


def test_one_series_in_order_of_time_or_of_rows(tmp_path: Path) -> None:
    table = pd.DataFrame({"t": pd.to_datetime(["2024-01-03", "2024-01-01", "2024-01-02"]), "x": [3.0, 1.0, 2.0]})
    ordered = quietly(table, tmp_path / "ordered", order="t", inputs="x")
    assert content(ordered) == {0: {"x": [1.0, 2.0, 3.0]}}
    as_is = quietly(table, tmp_path / "as-is", inputs="x", layout="series")
    assert content(as_is) == {0: {"x": [3.0, 1.0, 2.0]}}


def test_a_series_longer_than_a_shard_comes_back(tmp_path: Path) -> None:
    numbers = np.arange(50_000, dtype=np.float32)
    store = quietly(pd.DataFrame({"x": numbers}), tmp_path / "store", inputs=["x"], shard_bytes=1 << 14)
    assert store.lengths.tolist() == [50_000]
    assert len(store.manifest.shards) > 5
    np.testing.assert_array_equal(np.asarray(store[0].inputs)[:, 0], numbers)


def test_each_file_is_a_sequence_where_the_file_name_is_the_key(tmp_path: Path) -> None:
    for name, numbers in {"b/two": [1.0, 2.0], "a/one": [3.0]}.items():
        (tmp_path / name).parent.mkdir()
        pd.DataFrame({"x": numbers}).to_csv(tmp_path / f"{name}.csv", index=False)
    store = quietly(tmp_path, tmp_path / "store", sequence="filename", inputs="x")
    assert content(store) == {"a/one.csv": {"x": [3.0]}, "b/two.csv": {"x": [1.0, 2.0]}}


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_the_file_name_is_the_key_in_other_formats_too(tmp_path: Path, ending: str) -> None:
    for name in ("one", "two"):
        write = write_parquet if ending == "parquet" else write_jsonl
        write([(1, 1, 1.0 + (name == "two"))], tmp_path / name)
    store = quietly(tmp_path, tmp_path / "store", sequence="filename", inputs="x")
    assert content(store) == {f"one.{ending}": {"x": [1.0]}, f"two.{ending}": {"x": [2.0]}}


def test_fields_of_all_kinds_come_together(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "u": ["b", "a", "a"],
            "t": [0, 1, 0],
            "x": [1.5, 2.5, 3.5],
            "z": [True, False, True],
            "shop": ["north", "south", "north"],
            "sales": [7, 8, 9],
            "churn": [1, 0, 0],
            "size": [10.0, 20.0, 20.0],
            "city": ["Oslo", "Rome", "Rome"],
        }
    )
    store = quietly(
        table,
        tmp_path / "store",
        sequence="u",
        order="t",
        inputs=["x", "shop", "z"],
        target={"sales": ["sales"]},
        label="churn",
        static=["size", "city"],
        dtypes={"sales": "int16", "churn": "int64", "x": "float64"},
    )
    assert content(store) == {
        "a": {"x": [[3.5, 1.0], [2.5, 0.0]], "shop": [0, 1], "sales": [[9], [8]], "y": 0, "static": [20.0], "city": 0},
        "b": {"x": [[1.5, 1.0]], "shop": [0], "sales": [[7]], "y": 1, "static": [10.0], "city": 1},
    }
    assert store.vocabulary("shop") == ["north", "south"]
    assert store.vocabulary("city") == ["Rome", "Oslo"]
    assert [(field.name, field.dtype) for field in store.schema.targets] == [("sales", "int16"), ("y", "int64")]


def test_a_label_that_changes_in_its_sequence_is_an_error(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [1, 1], "t": [1, 2], "x": [0.0, 0.0], "y": ["cat", "dog"]})
    with refused(tmp_path, "the sequence 1 has both 'cat' and 'dog' in the column 'y'"):
        quietly(table, tmp_path / "store", **ASKED, label="y")


def test_a_row_without_its_key_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,t,x\n1,1,1\n,2,2\n")
    with refused(tmp_path, "a.csv, row 2 after the header", "'u' is missing"):
        quietly(tmp_path / "a.csv", tmp_path / "store", **ASKED)
    (tmp_path / "a.csv").write_text("u,t,x\n1,1,1\n1,,2\n")
    with refused(tmp_path, "a.csv, row 2 after the header", "'t' is missing"):
        quietly(tmp_path / "a.csv", tmp_path / "store", **ASKED)
    with refused(tmp_path, "'t' is missing"):
        quietly(pd.DataFrame({"u": [1, 1], "t": [1.0, np.nan], "x": [1, 1]}), tmp_path / "store", **ASKED)


@pytest.mark.parametrize("write", WRITERS)
def test_a_missing_value_is_an_error_that_names_file_row_and_column(
    tmp_path: Path, write: Callable[[Sequence[Row], Path], None]
) -> None:
    write([(1, t, float(t)) for t in range(5)], tmp_path / "one")
    write([(2, 9, 0.0), (2, 8, float("nan")), (2, 7, 0.0)], tmp_path / "two")
    files = [*tmp_path.glob("one.*"), *tmp_path.glob("two.*")]
    place = "row 6" if write is write_arrow else f"{files[1]}, row 2"
    with refused(tmp_path, place, "column 'x' of the sequence 2", "missing"):
        quietly(files, tmp_path / "store", **ASKED)


@pytest.mark.parametrize("number", [1e300, -1e300, float("inf")])
def test_what_float32_cannot_hold_is_an_error_that_names_the_row(tmp_path: Path, number: float) -> None:
    table = pd.DataFrame({"u": [1, 1], "t": [1, 2], "x": [0.0, number]})
    with refused(tmp_path, "row 1", "column 'x'", "infinite"):
        quietly(table, tmp_path / "store", **ASKED)
    if np.isfinite(number):
        assert content(quietly(table, tmp_path / "wide", **ASKED, dtypes="float64"))[1]["x"][1] == number


def test_dates_as_text_are_ordered_by_time_and_other_text_is_refused(tmp_path: Path) -> None:
    dates = pd.DataFrame({"u": [1, 1], "t": ["2024-10-01", "2024-09-01"], "x": [1.0, 0.0]})
    assert content(quietly(dates, tmp_path / "dates", **ASKED)) == {1: {"x": [0.0, 1.0]}}
    numbers = pd.DataFrame({"u": [1, 1], "t": ["10", "9"], "x": [1.0, 0.0]})
    with refused(tmp_path, "order='t'", 'dtypes={"t": "int64"}'):
        quietly(numbers, tmp_path / "store", **ASKED)
    assert content(quietly(numbers, tmp_path / "as numbers", **ASKED, dtypes={"t": "int64"})) == {1: {"x": [0.0, 1.0]}}
    assert content(quietly(numbers, tmp_path / "as text", **ASKED, dtypes={"t": "text"})) == {1: {"x": [1.0, 0.0]}}


def test_names_with_quotes_are_names(tmp_path: Path) -> None:
    table = pd.DataFrame({'u"; DROP': ["it's", 'say "x"'], "t' --": [1, 2], 'x"': [1.0, float("nan")]})
    asked: dict[str, Any] = {"sequence": 'u"; DROP', "order": "t' --", "inputs": 'x"'}
    assert list(quietly(table, tmp_path / "store", **asked, missing=0).ids) == ["it's", 'say "x"']
    folder = tmp_path / "it's"
    folder.mkdir()
    table.to_csv(folder / "a.csv", index=False)
    assert list(quietly(folder, tmp_path / "from file", **asked, missing=0).ids) == ["it's", 'say "x"']
    with refused(folder, "row 2", "missing"):
        quietly(folder / "a.csv", folder / "store", **asked)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [1], "t": [1], "x": [1.0]})
    with refused(tmp_path, "'X'", "did you mean 'x'?"):
        quietly(table, tmp_path / "store", sequence="u", order="t", inputs="X")
    with refused(tmp_path, "'user'", "'u', 't', 'x'"):
        quietly(table, tmp_path / "store", sequence="user", inputs="x")


def test_a_full_disk_is_seen_before_anything_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"u": [1], "t": [1], "x": [1.0]}), tmp_path / "a.parquet")
    monkeypatch.setattr(
        "lowtide.data.ingestion.sources.disk_space.shutil.disk_usage", lambda _: SimpleNamespace(free=0)
    )
    with refused(tmp_path, "0 bytes free"):
        quietly(tmp_path / "a.parquet", tmp_path / "store", **ASKED)


def test_spilled_data_are_sorted_beside_the_store_and_go_again(tmp_path: Path) -> None:
    count = 600_000
    shuffled = np.random.default_rng(0).permutation(count)
    columns = {f"x{place}": np.arange(count, dtype=np.float32) for place in range(40)}
    table = pa.table({"u": shuffled // 1000, "t": shuffled, **columns})
    pq.write_table(table, tmp_path / "a.parquet")
    store = quietly(
        tmp_path / "a.parquet",
        tmp_path / "store",
        sequence="u",
        order="t",
        inputs=list(columns),
        memory_limit="288MiB",
        split={"train": 0.5, "test": 0.5},
    )
    assert len(store) == 600
    where = np.argsort(shuffled)
    for sequence in (0, 321, 599):
        expected = where[1000 * sequence : 1000 * (sequence + 1)]
        np.testing.assert_array_equal(np.asarray(store[sequence].inputs)[:, 39], expected.astype(np.float32))
    left = sorted(path.name for path in (tmp_path / "store").rglob("*"))
    assert not [name for name in left if "duckdb" in name or "scratch" in name or "building" in name], json.dumps(left)
