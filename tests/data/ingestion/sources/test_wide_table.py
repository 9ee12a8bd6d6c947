"""Rows with a column for each step become sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.data.ingestion.sources import wide_table
from tests.data.ingesting_cases import content, dropped, quietly, refused

TABLE = pd.DataFrame(
    {
        "name": ["p", "q"],
        "a1": [1.0, 4.0],
        "a2": [2.0, 5.0],
        "a3": [3.0, None],
        "b1": [10, 40],
        "b2": [20, 50],
        "b3": [30, 60],
        "c1": ["u", "v"],
        "c2": ["v", "v"],
        "c3": ["w", "u"],
        "y": [0, 1],
    }
)
A, B, C = (["a1", "a2", "a3"], ["b1", "b2", "b3"], ["c1", "c2", "c3"])


def test_columns_are_steps_and_gaps_at_the_end_can_be_dropped(tmp_path: Path) -> None:
    store = quietly(
        TABLE, tmp_path / "store", sequence="name", inputs=A, label="y", layout="wide", missing={"x": "drop"}
    )
    assert content(store) == {"p": {"x": [[1.0], [2.0], [3.0]], "y": 0.0}, "q": {"x": [[4.0], [5.0]], "y": 1.0}}
    assert dropped(store) == {"steps without 'x'": 1}


def test_lists_of_columns_are_features_and_fields_can_be_named(tmp_path: Path) -> None:
    store = quietly(TABLE, tmp_path / "store", inputs=[A, B], layout="wide", missing={"a1": -1})
    assert content(store) == {
        0: {"x": [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]},
        1: {"x": [[4.0, 40.0], [5.0, 50.0], [-1.0, 60.0]]},
    }
    store = quietly(
        TABLE, tmp_path / "store", inputs={"b": B, "kind": C}, target=A, layout="wide", missing={"y": "forward"}
    )
    assert content(store) == {
        0: {"b": [[10.0], [20.0], [30.0]], "kind": [0, 1, 2], "y": [[1.0], [2.0], [3.0]]},
        1: {"b": [[40.0], [50.0], [60.0]], "kind": [1, 1, 0], "y": [[4.0], [5.0], [5.0]]},
    }
    assert store.vocabulary("kind") == ["u", "v", "w"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_missing_step_is_named_by_its_column(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "csv":
        TABLE.to_csv(path, index=False)
    elif ending == "parquet":
        TABLE.to_parquet(path)
    else:
        TABLE.to_json(path, orient="records", lines=True)
    with refused(tmp_path, f"{path}, row 2", "column 'a3'", "missing"):
        quietly(path, tmp_path / "store", inputs=[A, B], layout="wide")
    store = quietly(path, tmp_path / "store", sequence="name", inputs=A, layout="wide", missing=0)
    assert content(store)["q"] == {"x": [[4.0], [5.0], [0.0]]}


def test_fields_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with refused(tmp_path, "{'x': 3, 'y': 2}"):
        quietly(TABLE, tmp_path / "store", inputs=B, target=["a1", "a2"], layout="wide")
    with refused(tmp_path, "as many columns"):
        quietly(TABLE, tmp_path / "store", inputs=[B, ["a1", "a2"]], layout="wide")
    with refused(tmp_path, "numbers and text"):
        quietly(TABLE, tmp_path / "store", inputs=["b1", "c1"], layout="wide")


def test_lists_of_columns_are_refused_in_other_layouts(tmp_path: Path) -> None:
    with refused(tmp_path, 'layout="wide"'):
        quietly(TABLE, tmp_path / "store", sequence="name", inputs=[A, B])


@settings(max_examples=15)
@given(rows=st.integers(1, 30), steps=st.integers(1, 7), features=st.integers(1, 3), batch=st.integers(1, 9))
def test_every_value_comes_to_its_place(
    tmp_path_factory: pytest.TempPathFactory, rows: int, steps: int, features: int, batch: int
) -> None:
    values = np.arange(rows * steps * features, dtype=np.float32).reshape(rows, features, steps)
    names = [[f"f{feature}t{step}" for step in range(steps)] for feature in range(features)]
    flat = {names[f][t]: values[:, f, t] for f in range(features) for t in range(steps)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_table, "_MOST_ROWS", batch)
        out = tmp_path_factory.mktemp("wide") / "store"
        store = quietly(pd.DataFrame(flat), out, inputs=names, layout="wide")
    assert content(store) == {row: {"x": values[row].T.tolist()} for row in range(rows)}
