"""What is left out is counted once, whatever the chunks and however many values it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.data.ingesting_cases import dropped, quietly, refused

NAN = float("nan")
LONG = 200_000


def rows(**columns: Any) -> pd.DataFrame:  # noqa: ANN401 - whatever a column holds
    """A sequence of several chunks, and two of three steps."""
    lengths = [LONG, 3, 3]
    steps = {"u": np.repeat(range(3), lengths), "t": np.concatenate([np.arange(length) for length in lengths])}
    per_sequence = {name: np.repeat(values, lengths) for name, values in columns.items()}
    return pd.DataFrame({**steps, "x": 1.0, **per_sequence})


def test_a_sequence_that_lacks_two_values_is_dropped_and_counted_once(tmp_path: Path) -> None:
    table = rows(a=[NAN, NAN, 1.0], b=[NAN, 1.0, 1.0])
    store = quietly(
        table, tmp_path / "store", sequence="u", order="t", inputs="x", static={"a": "a", "b": "b"}, missing="drop"
    )
    assert (list(store.ids), dropped(store)) == ([2], {"sequences without 'a'": 2})


def test_what_one_value_leaves_is_counted_by_the_next(tmp_path: Path) -> None:
    table = rows(a=[NAN, 1.0, 1.0], b=[NAN, NAN, 1.0])
    store = quietly(
        table, tmp_path / "store", sequence="u", order="t", inputs="x", static={"a": "a", "b": "b"}, missing="drop"
    )
    assert dropped(store) == {"sequences without 'a'": 1, "sequences without 'b'": 1}


def test_steps_of_a_sequence_that_goes_are_not_counted_besides(tmp_path: Path) -> None:
    table = rows(a=[NAN, 1.0, 1.0])
    table.loc[[5, LONG - 1, LONG], "x"] = NAN
    store = quietly(table, tmp_path / "store", sequence="u", order="t", inputs="x", static="a", missing="drop")
    assert store.lengths.tolist() == [2, 3]
    assert dropped(store) == {"sequences without 'static'": 1, "steps without 'x'": 1}


def test_where_nothing_is_left_the_error_says_what_became_of_it(tmp_path: Path) -> None:
    with refused(tmp_path, "dropped 3 sequences without 'static'"):
        quietly(rows(a=[NAN] * 3), tmp_path / "store", sequence="u", order="t", inputs="x", static="a", missing="drop")
