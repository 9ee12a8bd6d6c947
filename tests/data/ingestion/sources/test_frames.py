"""Tables in memory and Arrow files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
TABLE = pa.table({"u": [1, 1], "t": [1, 2], "x": [1, 2]})


def write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def test_arrow_files_of_several_types_keep_all_values(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", TABLE)
    write(tmp_path / "b.arrow", pa.table({"x": [2.5], "t": [1.5], "u": [1]}))
    assert content(quietly(tmp_path, tmp_path / "store", **ASKED)) == {1: {"x": [1.0, 2.5, 2.0]}}


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_an_arrow_file_without_a_column_is_no_file_of_missing_values(tmp_path: Path, lacking: str) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.arrow", TABLE.drop(["x"]) if name == lacking else TABLE)
    with refused(tmp_path, f"{tmp_path / lacking}.arrow has no column 'x'"):
        quietly(tmp_path, tmp_path / "store", **ASKED, missing="drop", duplicates="keep")


def test_steps_are_ordered_by_durations(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": 1, "t": pd.to_timedelta([26, -1, 3], unit="h"), "x": [3.0, 1.0, 2.0]})
    assert content(quietly(table, tmp_path / "store", **ASKED)) == {1: {"x": [1.0, 2.0, 3.0]}}


def test_a_column_of_a_type_that_nobody_knows_is_an_error_of_ours(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": 1, "t": pd.period_range("2024", "2026", freq="Y"), "x": 1.0})
    with refused(tmp_path, "period"):
        quietly(table, tmp_path / "store", **ASKED)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame([[1, 1, 1.0, 2.0]], columns=["u", "t", "x", "x"])
    with refused(tmp_path, "two columns 'x'"):
        quietly(table, tmp_path / "store", **ASKED)


def test_arrays_with_several_axes_in_cells_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": [np.ones((2, 3)), np.ones((1, 3))]})
    with refused(tmp_path, ".map(list)"):
        quietly(table, tmp_path / "store", inputs="x")
    store = quietly(table.assign(x=table["x"].map(list)), tmp_path / "store", inputs="x")
    assert store.lengths.tolist() == [2, 1]
