"""Columns of whole numbers that turn out to hold others, far below the rows that types are guessed from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": ["x"]}
ROWS = 25_000
MANY = "u,t,x\n" + "".join(f"{row % 7},{row},1\n" for row in range(ROWS))


@pytest.mark.parametrize("name", ["007", "7.0", "7.5", "7e0", "+7", "abc"])
def test_a_name_that_is_no_whole_number_is_taken_for_no_other_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{MANY}{name},99999,1\n")
    with refused(tmp_path, f"{path}, row {ROWS + 1} after the header, column 'u'", repr(name), '"text"'):
        quietly(path, tmp_path / "store", **ASKED)
    store = quietly(path, tmp_path / "store", **ASKED, dtypes={"u": "text"})
    assert content(store)[name] == {"x": [[1.0]]}


def test_an_order_with_a_fraction_is_not_rounded(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{MANY}0,1.5,2\n0,2.0,3\n")
    with refused(tmp_path, f"{path}, row {ROWS + 1} after the header, column 't'", "'1.5'", '"float64"'):
        quietly(path, tmp_path / "store", **ASKED)
    store = quietly(path, tmp_path / "store", **ASKED, dtypes={"t": "float64"})
    assert content(store)[0]["x"][:4] == [[1.0], [2.0], [3.0], [1.0]]


def test_a_field_of_whole_numbers_takes_no_fraction(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{MANY}0,99999,1.5\n")
    with refused(tmp_path, f"{path}, row {ROWS + 1} after the header, column 'x'", "'1.5'"):
        quietly(path, tmp_path / "store", **ASKED, dtypes={"x": "int16"})


@pytest.mark.parametrize("argument", ["sequence", "order"])
def test_numbers_asked_for_as_whole_are_not_rounded(tmp_path: Path, argument: str) -> None:
    table = pd.DataFrame({"u": [1.4, 1.0, 2.0], "t": [1.4, 1.0, 2.0], "x": [1.0, 2.0, 3.0]})
    column = {"sequence": "u", "order": "t"}[argument]
    with refused(tmp_path, f"row 0 (counted from 0), column '{column}'", "'1.4'"):
        quietly(table, tmp_path / "store", **ASKED, dtypes={column: "int64"})
    whole = table.assign(**{column: [3.0, 1.0, 2.0]})
    assert len(quietly(whole, tmp_path / "store", **ASKED, dtypes={column: "int64"})) == 3


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_json_lists_that_go_on_with_fractions_keep_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        lines([*({"u": f"s{row}", "x": [1, 2], "y": 1} for row in range(ROWS)), {"u": "z", "x": [1.5], "y": 0.5}])
    )
    store = quietly(path, tmp_path / "store", sequence="u", inputs="x", label="y")
    assert (np.asarray(store[ROWS].inputs).tolist(), np.asarray(store[ROWS].targets).tolist()) == ([1.5], 0.5)


def test_json_names_that_go_on_as_text_are_taken_for_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines([*({"u": row, "x": [1]} for row in range(ROWS)), {"u": "007", "x": [1]}]))
    with refused(tmp_path, f"{path}, row {ROWS + 1}", "'007'"):
        quietly(path, tmp_path / "store", sequence="u", inputs="x")


def test_json_dates_that_go_on_with_times_keep_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"u": row % 7, "t": f"2024-01-{1 + row % 28:02d}", "x": 1} for row in range(ROWS)]
    late = [{"u": 9, "t": f"2024-01-05 {hour}:00:00", "x": hour} for hour in (12, 11, 10)]
    path.write_text(lines([*rows, *late]))
    store = quietly(path, tmp_path / "store", **ASKED, duplicates="first")
    assert content(store)[9] == {"x": [[10.0], [11.0], [12.0]]}


def test_wide_rows_keep_their_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,a,b\n" + "".join(f"{row},1,2\n" for row in range(ROWS)) + "7.5,1,2\n")
    with refused(tmp_path, f"{path}, row {ROWS + 1} after the header", "'7.5'"):
        quietly(path, tmp_path / "store", sequence="u", inputs=["a", "b"], layout="wide")


def test_wide_fields_of_whole_numbers_take_no_fraction(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,a,b\n" + "".join(f"{row},1,2\n" for row in range(ROWS)) + f"{ROWS},1,2.5\n")
    with refused(tmp_path, f"{path}, row {ROWS + 1} after the header, column 'b'", "'2.5'"):
        quietly(path, tmp_path / "store", sequence="u", inputs=["a", "b"], layout="wide", dtypes="int16")
