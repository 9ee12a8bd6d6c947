"""Parquet files that are not whole, or do not belong together, are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
TABLE = pa.table({"u": [1, 1], "t": [1, 2], "x": [1.0, 2.0]})


@pytest.mark.parametrize("kept", [5, 100, -1])
def test_a_file_cut_short_is_named(tmp_path: Path, kept: int) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE, tmp_path / "b.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:kept])
    with refused(tmp_path, str(tmp_path / "b.parquet"), "no whole Parquet file"):
        quietly(tmp_path, tmp_path / "store", **ASKED)


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    numbers = np.arange(100_000, dtype=np.float32) % 1000
    table = pa.table({"u": np.zeros(100_000, np.int64), "t": np.arange(100_000), "x": numbers})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="zstd")
    data = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(0).column(2).data_page_offset
    data[start + 40 : start + 2000] = bytes(1960)
    path.write_bytes(data)
    with refused(tmp_path, "a.parquet"):
        quietly(path, tmp_path / "store", **ASKED)


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_a_file_that_lacks_a_column_is_named(tmp_path: Path, lacking: str) -> None:
    for name in ("a", "b"):
        pq.write_table(TABLE.drop(["x"]) if name == lacking else TABLE, tmp_path / f"{name}.parquet")
    with refused(tmp_path, f"{tmp_path / lacking}.parquet has no column 'x'"):
        quietly(tmp_path, tmp_path / "store", **ASKED)


def test_columns_come_by_name_and_types_may_differ_in_size(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    other = pa.table({"x": pa.array([3.5], pa.float32()), "more": [0], "t": pa.array([3], pa.int16()), "u": [1]})
    pq.write_table(other, tmp_path / "b.parquet")
    assert content(quietly(tmp_path, tmp_path / "store", **ASKED)) == {1: {"x": [1.0, 2.0, 3.5]}}


def test_a_file_without_rows_belongs_to_the_others(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE[:0], tmp_path / "b.parquet")
    assert content(quietly(tmp_path, tmp_path / "store", **ASKED)) == {1: {"x": [1.0, 2.0]}}
    with refused(tmp_path, "no sequence was written"):
        quietly(tmp_path / "b.parquet", tmp_path / "other", **ASKED)


def test_row_groups_larger_than_the_memory_are_read(tmp_path: Path) -> None:
    count = 300_000
    rng = np.random.default_rng(0)
    order = rng.permutation(count)
    columns = {f"x{place}": rng.standard_normal(count) for place in range(60)}
    pq.write_table(pa.table({"t": order, **columns}), tmp_path / "a.parquet", row_group_size=count)
    assert (tmp_path / "a.parquet").stat().st_size > 112 << 20
    store = quietly(tmp_path / "a.parquet", tmp_path / "store", order="t", inputs=["x0", "x59"], memory_limit="288MiB")
    np.testing.assert_array_equal(
        np.asarray(store[0].inputs)[:, 1], columns["x59"][np.argsort(order)].astype(np.float32)
    )


def test_folders_named_by_values_are_columns(tmp_path: Path) -> None:
    for shop in ("north", "south"):
        (tmp_path / f"shop={shop}").mkdir()
        pq.write_table(TABLE, tmp_path / f"shop={shop}" / "a.parquet")
    store = quietly(tmp_path, tmp_path / "store", sequence="shop", order="t", inputs="x")
    assert content(store) == {"north": {"x": [1.0, 2.0]}, "south": {"x": [1.0, 2.0]}}


def test_whole_numbers_in_the_first_file_do_not_round_those_of_the_next(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1, 1], "t": [1, 2], "x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"u": [1, 2], "t": [1.5, 1.0], "x": [2.5, 1e30]}), tmp_path / "b.parquet")
    store = quietly(tmp_path, tmp_path / "store", **ASKED, dtypes={"x": "float64"})
    assert content(store) == {1: {"x": [1.0, 2.5, 2.0]}, 2: {"x": [1e30]}}


def test_files_with_text_and_numbers_in_a_column_are_named(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE.set_column(2, "x", pa.array(["3", "4"])), tmp_path / "b.parquet")
    with refused(tmp_path, f"{tmp_path / 'b.parquet'} has the column 'x' as string", "double"):
        quietly(tmp_path, tmp_path / "store", **ASKED)


def test_a_key_that_is_nan_is_missing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": [1.0, float("nan")], "t": [1, 2], "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    with refused(tmp_path, "a.parquet, row 2: column 'u' is missing"):
        quietly(tmp_path, tmp_path / "store", **ASKED)
