"""Rows that hold whole sequences, as lists, become these sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.data.ingestion.sources import list_rows
from tests.data.ingesting_cases import content, dropped, quietly, refused

LISTS = st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=12).filter(any)


def as_arrow(table: pa.Table, _: Path) -> Any:  # noqa: ANN401 - a source
    return table


def as_pandas(table: pa.Table, _: Path) -> Any:  # noqa: ANN401 - a source
    return table.to_pandas()


def as_polars(table: pa.Table, _: Path) -> Any:  # noqa: ANN401 - a source
    return pl.from_arrow(table)


def as_parquet(table: pa.Table, folder: Path) -> Any:  # noqa: ANN401 - a source
    half = (len(table) + 1) // 2
    pq.write_table(table[:half], folder / "a.parquet", row_group_size=3)
    pq.write_table(table[half:], folder / "b.parquet")
    return str(folder / "*.parquet")


def as_jsonl(table: pa.Table, folder: Path) -> Any:  # noqa: ANN401 - a source
    table.to_pandas().to_json(folder / "a.jsonl", orient="records", lines=True)
    return folder / "a.jsonl"


def as_arrow_file(table: pa.Table, folder: Path) -> Any:  # noqa: ANN401 - a source
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=5)
    return folder / "a.arrow"


SOURCES = [as_arrow, as_pandas, as_polars, as_parquet, as_jsonl, as_arrow_file]


@settings(max_examples=30)
@given(lists=LISTS, make=st.sampled_from(SOURCES), rows=st.integers(1, 4))
def test_lists_become_sequences_and_empty_ones_are_counted(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[int]], make: Callable[[pa.Table, Path], Any], rows: int
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    table = pa.table(
        {
            "name": [f"s{place}" for place in range(len(lists))],
            "a": pa.array([[float(value) for value in values] for values in lists], pa.list_(pa.float32())),
            "b": pa.array([[value + 1 for value in values] for values in lists], pa.large_list(pa.int64())),
            "kind": pa.array([["even" if value % 2 else "odd" for value in values] for values in lists]),
            "label": ["long" if len(values) > 4 else "short" for values in lists],
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_rows, "_MOST_ROWS", rows)
        store = quietly(
            make(table, folder),
            folder / "store",
            sequence="name",
            inputs=["a", "kind"],
            target="b",
            label={"label": "label"},
            dtypes={"y": "int64"},
        )
    kinds = store.vocabulary("kind")
    labels = store.vocabulary("label")
    found = {
        name: (
            [value[0] for value in fields["x"]],
            fields["y"],
            [kinds[code] for code in fields["kind"]],
            labels[fields["label"]],
        )
        for name, fields in content(store).items()
    }
    assert found == {
        f"s{place}": (
            [float(value) for value in values],
            [value + 1 for value in values],
            ["even" if value % 2 else "odd" for value in values],
            "long" if len(values) > 4 else "short",
        )
        for place, values in enumerate(lists)
        if values
    }
    empty = sum(not values for values in lists)
    assert dropped(store) == ({"sequences without a step": empty} if empty else {})


@pytest.mark.parametrize("make", SOURCES)
def test_rows_without_a_name_are_numbered(tmp_path: Path, make: Callable[[pa.Table, Path], Any]) -> None:
    store = quietly(make(pa.table({"x": [[1.0, 2.0], [3.0]]}), tmp_path), tmp_path / "store", inputs="x")
    assert content(store) == {0: {"x": [1.0, 2.0]}, 1: {"x": [3.0]}}


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("nested", [pa.list_(pa.list_(pa.float64())), pa.list_(pa.list_(pa.float32(), 2))])
def test_lists_of_lists_hold_several_features(
    tmp_path: Path, make: Callable[[pa.Table, Path], Any], nested: pa.DataType
) -> None:
    steps = [[], [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    store = quietly(make(pa.table({"x": pa.array(steps, nested)}), tmp_path), tmp_path / "store", inputs="x")
    assert content(store) == {1: {"x": [[1.0, 2.0], [3.0, 4.0]]}, 2: {"x": [[5.0, 6.0]]}}
    assert store.schema.field("x").columns == ("x[0]", "x[1]")


def test_lists_of_one_length_are_sequences_too(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})
    assert content(quietly(table, tmp_path / "store", inputs="x")) == {0: {"x": [1.0, 2.0]}, 1: {"x": [3.0, 4.0]}}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"x": [[1.0], [1.0, 2.0]], "z": [[1.0], [1.0]]}, ["row 1", "'z' has 1 steps, 'x' has 2"]),
        ({"x": [[1.0], None], "z": [[1.0], [1.0]]}, ["row 1", "the list in column 'x' is missing"]),
        ({"x": [[1.0], [2.0, None]], "z": [[1.0], [1.0, 2.0]]}, ["row 1", "column 'x', step 1", "missing"]),
        ({"x": [[1.0], [2.0]], "z": [1.0, 2.0]}, ["not all lists", "label= or static="]),
    ],
)
def test_rows_that_hold_no_sequence_are_named(tmp_path: Path, columns: dict[str, Any], told: list[str]) -> None:
    with refused(tmp_path, *told):
        quietly(pa.table(columns), tmp_path / "store", inputs=["x", "z"])


@pytest.mark.parametrize("odd", [[3.0], [1.0, 2.0, 3.0], None])
def test_a_step_with_other_features_is_named(tmp_path: Path, odd: list[float] | None) -> None:
    pq.write_table(pa.table({"x": [[[1.0, 2.0]]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([[[1.0, 2.0]], [[1.0, 2.0], odd]])}), tmp_path / "b.parquet")
    with refused(tmp_path, f"{tmp_path / 'b.parquet'}, row 2, column 'x', step 1", "features"):
        quietly(tmp_path, tmp_path / "store", inputs="x")


def test_whole_numbers_with_gaps_among_several_features_can_be_filled(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[[1, None], [3, 4]]])})
    store = quietly(table, tmp_path / "store", inputs="x", dtypes={"x": "int16"}, missing={"x[1]": 9})
    assert content(store) == {0: {"x": [[1, 9], [3, 4]]}}


def test_two_rows_of_one_name_are_an_error(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": ["a", "b", "a"], "x": [[1.0], [2.0], [3.0]]})
    with refused(tmp_path, "2 sequences are called 'a'", "[0, 2]"):
        quietly(table, tmp_path / "store", sequence="u", inputs="x")


def test_a_row_without_a_name_is_an_error(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": ["a", None], "x": [[1.0], [2.0]]})
    with refused(tmp_path, "row 1", "'u' is missing"):
        quietly(table, tmp_path / "store", sequence="u", inputs="x")


def test_large_rows_are_read_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_rows, "_BATCH_BYTES", 1 << 16)
    long = np.arange(20_000, dtype=np.float32)
    table = pa.table({"x": pa.array([long + row for row in range(5)])})
    pq.write_table(table, tmp_path / "a.parquet")
    store = quietly(tmp_path / "a.parquet", tmp_path / "store", inputs="x", shard_bytes=1 << 16)
    for row in range(5):
        np.testing.assert_array_equal(np.asarray(store[row].inputs), long + row)


@pytest.mark.parametrize("source", [pa.table({"x": [[1.0, 2.0]], "t": [[2, 1]]}), [{"x": [1.0, 2.0]}], np.arange(3.0)])
def test_an_order_of_sequences_that_come_whole_is_refused(tmp_path: Path, source: object) -> None:
    with refused(tmp_path, "order='t' was given for sequences that come whole"):
        quietly(source, tmp_path / "store", order="t", inputs="x")


def test_sequences_of_parquet_files_are_named_by_their_files(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"x": [[1.0, 2.0]]}), tmp_path / f"{name}.parquet")
    store = quietly(tmp_path, tmp_path / "store", sequence="filename", inputs="x")
    assert list(store.ids) == ["a.parquet", "b.parquet"]
