"""Whatever is handed over is read as what it is, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.data.ingesting_cases import content, quietly, refused

EXPECTED = {0: {"x": [1.0, 2.0]}}


def generated() -> Iterator[dict[str, Any]]:
    yield {"x": [1.0, 2.0]}


@pytest.mark.parametrize(
    "source",
    [
        np.array([1.0, 2.0]),
        [np.array([1.0, 2.0])],
        {"x": [1.0, 2.0]},
        [{"x": [1.0, 2.0]}],
        generated(),
        generated,
        pd.DataFrame({"x": [1.0, 2.0]}),
    ],
    ids=["array", "arrays", "mapping", "sequences", "generator", "function", "table"],
)
def test_a_series_is_a_series_however_it_comes(tmp_path: Path, source: object) -> None:
    assert content(quietly(source, tmp_path / "store", inputs="x")) == EXPECTED


@pytest.mark.parametrize("source", [None, 5, 1.5])
def test_what_holds_no_sequences_is_refused(tmp_path: Path, source: object) -> None:
    with refused(tmp_path, f"the sources are a {type(source).__name__}"):
        quietly(source, tmp_path / "store")


def test_a_table_is_not_guessed_to_be_inputs(tmp_path: Path) -> None:
    with refused(tmp_path, "inputs= names none of its columns", "'x'"):
        quietly(pd.DataFrame({"x": [1.0]}), tmp_path / "store")


def test_one_series_has_no_sequence_column(tmp_path: Path) -> None:
    with refused(tmp_path, 'layout="series" and sequence='):
        quietly(pd.DataFrame({"u": [1], "x": [1.0]}), tmp_path / "store", sequence="u", inputs="x", layout="series")


def test_text_files_are_tables_where_columns_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("u,x\n7,1\n7,2\n")
    store = quietly(tmp_path / "a.txt", tmp_path / "table", sequence="u", inputs="x")
    assert content(store) == {7: {"x": [1.0, 2.0]}}
    assert len(quietly(tmp_path / "a.txt", tmp_path / "text")) == 3


def test_types_say_whether_rows_are_steps_or_sequences(tmp_path: Path) -> None:
    rows = quietly(pd.DataFrame({"x": [[1.0, 2.0]]}), tmp_path / "list", inputs="x")
    assert content(rows) == EXPECTED
    with refused(tmp_path, "are lists of columns"):
        quietly(pd.DataFrame({"a": [1.0], "b": [2.0]}), tmp_path / "store", inputs=[["a", "b"]])
    wide = quietly(pd.DataFrame({"a": [1.0], "b": [2.0]}), tmp_path / "wide", inputs=["a", "b"], layout="wide")
    assert content(wide) == {0: {"x": [[1.0], [2.0]]}}
