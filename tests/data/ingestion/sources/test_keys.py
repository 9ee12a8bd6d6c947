"""The columns that rows are put in order by: of every type that has an order, and of no other."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
DAY = dt.date(2024, 1, 1)


def table(names: Any, times: Any) -> pa.Table:  # noqa: ANN401 - whatever an Arrow column is made of
    return pa.table({"u": names, "t": times, "x": [2.0, 1.0]})


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (pa.array([7, 7], pa.uint8()), 7),
        (["7", "7"], "7"),
        ([True, True], "true"),
        ([DAY, DAY], "2024-01-01"),
        ([Decimal("1.50")] * 2, "1.50"),
        ([0.5, 0.5], "0.5"),
        (pa.array(["a", "a"]).dictionary_encode(), "a"),
    ],
)
def test_names_are_of_any_type_that_can_be_written(tmp_path: Path, names: Any, called: object) -> None:  # noqa: ANN401
    store = quietly(table(names, [2, 1]), tmp_path / "store", **ASKED)
    assert content(store) == {called: {"x": [1.0, 2.0]}}


@pytest.mark.parametrize(
    "times",
    [
        [10, 9],
        [0.5, -0.5],
        [float("inf"), 1.0],
        [Decimal("1.50"), Decimal("1.05")],
        [DAY, dt.date(2023, 12, 31)],
        [dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 1)],  # noqa: DTZ001 - without a zone, as many are
        [dt.time(10), dt.time(9)],
        [dt.timedelta(hours=26), dt.timedelta(days=1)],
        ["2024-01-02", "2024-01-01 10:00:00"],
    ],
)
def test_orders_are_of_any_type_that_goes_on(tmp_path: Path, times: Any) -> None:  # noqa: ANN401 - as above
    assert content(quietly(table([1, 1], times), tmp_path / "store", **ASKED)) == {1: {"x": [1.0, 2.0]}}


def test_text_is_no_order_unless_it_is_said_how_it_is_read(tmp_path: Path) -> None:
    rows = table([1, 1], ["10", "9"])
    with refused(tmp_path, "order='t' names a column of type VARCHAR", '"10" before "9"'):
        quietly(rows, tmp_path / "store", **ASKED)
    assert content(quietly(rows, tmp_path / "number", **ASKED, dtypes={"t": "int64"}))[1] == {"x": [1.0, 2.0]}
    assert content(quietly(rows, tmp_path / "text", **ASKED, dtypes={"t": "text"}))[1] == {"x": [2.0, 1.0]}


@pytest.mark.parametrize("column", ["u", "t"])
@pytest.mark.parametrize("values", [[b"a", b"b"], [[1], [2]], [{"a": 1}, {"a": 2}]])
def test_what_has_no_order_is_refused(tmp_path: Path, column: str, values: Any) -> None:  # noqa: ANN401 - as above
    names, times = (values, [1, 2]) if column == "u" else ([1, 1], values)
    with refused(tmp_path, f"'{column}' names a column of type"):
        quietly(table(names, times), tmp_path / "store", **ASKED)


@pytest.mark.parametrize(
    ("column", "values"), [("u", [1, None]), ("u", [1.0, float("nan")]), ("t", [1.0, float("nan")])]
)
def test_a_row_without_a_key_is_named(tmp_path: Path, column: str, values: Any) -> None:  # noqa: ANN401 - as above
    names, times = (values, [1, 2]) if column == "u" else ([1, 1], values)
    with refused(tmp_path, f"row 1 (counted from 0): column '{column}' is missing"):
        quietly(table(names, times), tmp_path / "store", **ASKED)
