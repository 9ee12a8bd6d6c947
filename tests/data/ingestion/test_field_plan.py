"""What is asked for becomes the fields that it means, or is refused with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tests.data.ingesting_cases import content, quietly, refused

TABLE = pd.DataFrame(
    {
        "u": [1],
        "t": [1],
        "a": [1.0],
        "b": [2],
        "shop": ["n"],
        "city": ["o"],
        "when": pd.to_datetime(["2024-01-01"]),
        "raw": [b"x"],
        "digits": ["12"],
    }
)


def fields(folder: Path, **asked: Any) -> list[tuple[str, str, str, int, str]]:  # noqa: ANN401 - as ingest
    store = quietly(TABLE, folder / "store", sequence="u", order="t", **asked)
    return [(field.name, field.role, field.per, field.width, field.dtype) for field in store.schema.fields]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"inputs": "a"}, [("x", "inputs", "step", 0, "float32")]),
        ({"inputs": ["a"]}, [("x", "inputs", "step", 1, "float32")]),
        ({"inputs": ["a", "b"]}, [("x", "inputs", "step", 2, "float32")]),
        ({"inputs": "shop"}, [("x", "inputs", "step", 0, "int32")]),
        ({"inputs": ["shop"]}, [("shop", "inputs", "step", 0, "int32")]),
        (
            {"inputs": ["a", "shop", "b", "city"]},
            [
                ("x", "inputs", "step", 2, "float32"),
                ("shop", "inputs", "step", 0, "int32"),
                ("city", "inputs", "step", 0, "int32"),
            ],
        ),
        (
            {"inputs": {"n": ["a", "b"], "s": "shop"}},
            [("n", "inputs", "step", 2, "float32"), ("s", "inputs", "step", 0, "int32")],
        ),
        (
            {"inputs": "a", "target": ["b"]},
            [("x", "inputs", "step", 0, "float32"), ("y", "targets", "step", 1, "float32")],
        ),
        (
            {"inputs": "a", "label": ["shop"]},
            [("x", "inputs", "step", 0, "float32"), ("y", "targets", "sequence", 0, "int32")],
        ),
        (
            {"inputs": "a", "static": ["b", "shop"]},
            [
                ("x", "inputs", "step", 0, "float32"),
                ("static", "static", "sequence", 1, "float32"),
                ("shop", "static", "sequence", 0, "int32"),
            ],
        ),
        ({"inputs": "a", "dtypes": "float16"}, [("x", "inputs", "step", 0, "float16")]),
        ({"inputs": ["a", "shop"], "dtypes": "float64"}, None),
        ({"inputs": "b", "dtypes": {"b": "int8"}}, [("x", "inputs", "step", 0, "int8")]),
        ({"inputs": "b", "dtypes": {"b": "category", "x": "int16"}}, [("x", "inputs", "step", 0, "int16")]),
        ({"inputs": "digits", "dtypes": {"digits": "float32"}}, [("x", "inputs", "step", 0, "float32")]),
        ({"inputs": ["a", "b"], "horizon": 0}, [("x", "inputs", "step", 2, "float32")]),
    ],
)
def test_columns_become_fields(
    tmp_path: Path, asked: dict[str, Any], expected: list[tuple[str, str, str, int, str]] | None
) -> None:
    expected = expected or [("x", "inputs", "step", 1, "float64"), ("shop", "inputs", "step", 0, "int32")]
    assert fields(tmp_path, **asked) == expected


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"inputs": "when"}, ["'when'", "hours since"]),
        ({"inputs": "raw"}, ["'raw'", "BLOB"]),
        ({"inputs": {"n": ["a", "shop"]}}, ["'shop' holds text", '{"shop": "shop"}']),
        ({"inputs": "a", "target": "b", "label": "shop"}, ["several fields are called 'y'"]),
        ({"inputs": "a", "dtypes": "float8"}, ["'float8'", "'float32'"]),
        ({"inputs": "shop", "dtypes": {"shop": "category", "x": "float16"}}, ["'float16'", "'int8'"]),
        ({"inputs": ["a", "b"], "dtypes": {"a": "int8", "b": "int16"}}, ["several types"]),
        ({"inputs": "a", "dtypes": {"z": "int8"}}, ["dtypes= names 'z'"]),
        ({"inputs": "a", "missing": {"z": "drop"}}, ["missing= names 'z'"]),
        ({"inputs": "shop", "missing": "mean"}, ["categories", "no mean"]),
        ({"inputs": "shop", "missing": 0.5}, ["categories"]),
        ({"inputs": "a", "missing": {"value": "n"}}, ["'n' is text"]),
        ({"inputs": "a", "dtypes": "int8", "missing": 0.5}, ["whole numbers"]),
        ({"inputs": "a", "dtypes": "int8", "missing": "mean"}, ["whole numbers"]),
        ({"inputs": "a", "static": "b", "missing": {"b": "forward"}}, ["one value a sequence"]),
        ({"target": "a"}, ["inputs= names none"]),
    ],
)
def test_what_cannot_be_a_field_is_refused(tmp_path: Path, asked: dict[str, Any], told: list[str]) -> None:
    with refused(tmp_path, *told):
        fields(tmp_path, **asked)


def test_a_category_can_be_filled_in(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [1, 1], "t": [1, 2], "shop": ["n", None]})
    asked: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "shop"}
    store = quietly(table, tmp_path / "store", **asked, missing={"shop": {"value": "unknown"}})
    codes = np_codes(store)
    assert [store.vocabulary("x")[code] for code in codes] == ["n", "unknown"]


def np_codes(store: Any) -> list[int]:  # noqa: ANN401 - a Store
    found: list[int] = store[0].inputs.tolist()
    return found


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", 300), ("int8", -129), ("float16", 1e5), ("float32", -1e300), ("bfloat16", 3.4e38), ("int64", 2**63)],
)
def test_what_is_filled_in_must_fit(tmp_path: Path, dtype: str, value: float) -> None:
    table = pa.table({"x": pa.array([1, None])})
    with refused(tmp_path, f"stored as {dtype}, which does not hold {value}"):
        quietly(table, tmp_path / "store", inputs="x", dtypes=dtype, missing=value)


@pytest.mark.parametrize(("dtype", "value"), [("int8", -128), ("int64", 2**63 - 1), ("float16", 65504.0)])
def test_what_just_fits_is_filled_in(tmp_path: Path, dtype: str, value: float) -> None:
    table = pa.table({"x": pa.array([1, None])})
    store = quietly(table, tmp_path / "store", inputs="x", dtypes=dtype, missing=value)
    assert content(store) == {0: {"x": [1, value]}}
