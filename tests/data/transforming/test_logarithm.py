"""log(1 + x) of the chosen columns, there and back, and a word where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lowtide
from lowtide.data.transforms import apply_all, fit_transforms, invert_all
from tests.data.transforming_cases import assert_close, save_x

VALUES = np.random.default_rng(0).lognormal(1, 3, (100, 3)).astype(np.float32) - np.float32(0.5)


@pytest.mark.parametrize("chosen", [["x0", "x1", "x2"], ["x2", "x0"]])
def test_amounts_become_logarithms_and_come_back(tmp_path: Path, chosen: list[str]) -> None:
    made = fit_transforms(save_x(tmp_path / "store", [VALUES]), {"x": {"kind": "log1p", "columns": chosen}})
    done = apply_all(made, VALUES, None)
    for column in range(3):
        taken = f"x{column}" in chosen
        wanted = np.log1p(VALUES[:, column].astype(np.float64)) if taken else VALUES[:, column]
        assert_close(done[:, column], wanted, 1e-6 if taken else 0)
    assert_close(invert_all(made, done), VALUES)
    assert_close(invert_all(made, done[:, [1, 0]], columns=["x1", "x0"]), VALUES[:, [1, 0]])


@pytest.mark.parametrize("columns", [None, ["x1", "x2"]])
def test_a_number_without_a_logarithm_is_named(tmp_path: Path, columns: list[str] | None) -> None:
    requested = {"x": {"kind": "log1p"} if columns is None else {"kind": "log1p", "columns": columns}}
    made = fit_transforms(save_x(tmp_path / "good", [VALUES]), requested)
    wrong = VALUES.copy()
    wrong[5, 2] = -1
    with pytest.raises(lowtide.LowtideError, match=r"'x2' is -1\.0"):
        fit_transforms(save_x(tmp_path / "bad", [wrong]), requested)
    for number in (-1, np.nan):
        wrong[5, 2] = number
        with pytest.raises(lowtide.LowtideError, match=f"'x2' is {float(number)}"):
            apply_all(made, wrong, None)
