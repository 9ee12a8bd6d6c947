"""Which fields arrays become, from what was asked for and from the shapes of the first sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingesting_cases import quietly, refused


def fields(folder: Path, item: dict[str, Any], **asked: Any) -> dict[str, tuple[str, str, str, int]]:  # noqa: ANN401
    store = quietly([item], folder / "store", **asked)
    return {field.name: (field.role, field.per, field.dtype, field.width) for field in store.schema.fields}


STEPS = np.ones(3)
TABLE = np.ones((3, 2))


@pytest.mark.parametrize(
    ("item", "asked", "expected"),
    [
        ({"x": STEPS}, {}, {"x": ("inputs", "step", "float32", 0)}),
        ({"x": TABLE}, {}, {"x": ("inputs", "step", "float32", 2)}),
        ({"x": STEPS}, {"inputs": ["x"]}, {"x": ("inputs", "step", "float32", 1)}),
        ({"x": STEPS, "y": 1}, {}, {"x": ("inputs", "step", "float32", 0), "y": ("targets", "sequence", "float32", 0)}),
        ({"x": TABLE, "y": STEPS}, {}, {"x": ("inputs", "step", "float32", 2), "y": ("targets", "step", "float32", 0)}),
        ({"a": STEPS, "b": STEPS}, {"inputs": ["a", "b"]}, {"x": ("inputs", "step", "float32", 2)}),
        ({"x": ["p", "q"]}, {}, {"x": ("inputs", "step", "int32", 0)}),
        ({"x": [1, 2]}, {"dtypes": {"x": "category"}}, {"x": ("inputs", "step", "int32", 0)}),
        ({"x": STEPS}, {"horizon": 1}, {"x": ("inputs", "step", "float32", 0), "y": ("targets", "step", "float32", 0)}),
        (
            {"x": STEPS, "s": [1.0, 2.0]},
            {"inputs": "x", "static": "s", "dtypes": {"s": "float64"}},
            {"x": ("inputs", "step", "float32", 0), "static": ("static", "sequence", "float64", 2)},
        ),
    ],
)
def test_shapes_tell_what_was_not_said(
    tmp_path: Path, item: dict[str, Any], asked: dict[str, Any], expected: dict[str, tuple[str, str, str, int]]
) -> None:
    assert fields(tmp_path, item, **asked) == expected


@pytest.mark.parametrize(
    ("item", "asked", "told"),
    [
        ({"x": STEPS, "z": 1}, {}, "has 'z', and nothing says what that is"),
        ({"x": STEPS}, {"inputs": "z"}, "'z' was asked for"),
        ({"x": np.ones((3, 2, 2))}, {}, "values per step have the shape (steps,) or (steps, features)"),
        ({"a": TABLE, "b": STEPS}, {"inputs": ["a", "b"]}, "values per step have the shape (steps,)"),
        ({"x": STEPS, "y": 1.0}, {"inputs": "x", "target": "y"}, 'label="y"'),
        ({"x": [["p", "q"]]}, {}, "holds text of shape"),
        ({"x": STEPS}, {"dtypes": {"x": "float8"}}, "'float8'"),
        ({"x": STEPS}, {"dtypes": {"z": "float16"}}, "names 'z'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, item: dict[str, Any], asked: dict[str, Any], told: str) -> None:
    with refused(tmp_path, told):
        quietly([item], tmp_path / "store", **asked)
