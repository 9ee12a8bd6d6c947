"""Rows that are sequences are called by a column, or numbered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.data.ingesting_cases import quietly, refused


def names(column: Any, folder: Path) -> list[Any]:  # noqa: ANN401 - whatever an Arrow column is made of
    table = pa.table({"u": column, "x": [[1.0]] * len(column)})
    return list(quietly(table, folder / "store", sequence="u", inputs="x").ids)


@pytest.mark.parametrize(
    ("column", "called"),
    [
        ([3, 1], [3, 1]),
        (pa.array([1, 2], pa.uint16()), [1, 2]),
        (["b", "007"], ["b", "007"]),
        ([0.5, 2.0], ["0.5", "2"]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_rows_are_called_by_their_column(tmp_path: Path, column: Any, called: list[Any]) -> None:  # noqa: ANN401
    assert names(column, tmp_path) == called


def test_names_that_are_missing_twice_there_or_too_large_are_named(tmp_path: Path) -> None:
    with refused(tmp_path, "row 1 (counted from 0): column 'u' is missing"):
        names(["a", None], tmp_path)
    with refused(tmp_path, "2 sequences are called 'a'"):
        names(["a", "b", "a"], tmp_path)
    with refused(tmp_path, "row 1 (counted from 0)", "18446744073709551615"):
        names(pa.array([1, 2**64 - 1], pa.uint64()), tmp_path)


def test_rows_without_a_column_are_numbered(tmp_path: Path) -> None:
    store = quietly(pa.table({"x": [[1.0]] * 3}), tmp_path / "store", inputs="x")
    assert list(store.ids) == [0, 1, 2]
