"""Principal components: what they keep comes back, the others of the columns stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

import lowtide
from lowtide.data.transforming import fitting, principal
from lowtide.data.transforms import apply_all, fit_transforms, invert_all, results_of
from tests.data.transforming_cases import assert_close, save_x

RANDOM = np.random.default_rng(0)
FLAT = (RANDOM.normal(size=(3_000, 3)) * [9, 3, 1] @ RANDOM.normal(size=(3, 6)) + 50).astype(np.float32)
"""Steps of six columns that lie in three dimensions."""


def request(components: int, columns: list[str] | None = None) -> dict[str, object]:
    told = {"kind": "pca", "components": components}
    return {"x": told if columns is None else {**told, "columns": columns}}


def test_components_are_those_of_all_steps_at_once(tmp_path: Path) -> None:
    made = fit_transforms(save_x(tmp_path / "store", [FLAT]), request(3))
    done = apply_all(made, FLAT, None)
    assert done.shape == (3_000, 3)
    assert done.dtype == np.float32
    wanted = PCA(3).fit_transform(FLAT.astype(np.float64))
    assert_close(np.abs(done), np.abs(wanted), 1e-4)


def test_what_lies_in_the_components_comes_back(tmp_path: Path) -> None:
    made = fit_transforms(save_x(tmp_path / "store", [FLAT]), request(3))
    done = apply_all(made, FLAT, None)
    assert_close(invert_all(made, done), FLAT)
    assert_close(invert_all(made, done, columns=["x4", "x1"]), FLAT[:, [4, 1]])
    assert_close(invert_all(made, done.reshape(30, 100, 3)), FLAT.reshape(30, 100, 6))


def test_fewer_components_bring_back_the_nearest_that_they_can(tmp_path: Path) -> None:
    made = fit_transforms(save_x(tmp_path / "store", [FLAT]), request(2))
    back = invert_all(made, apply_all(made, FLAT, None))
    best = PCA(2).fit(FLAT.astype(np.float64))
    wanted = best.inverse_transform(best.transform(FLAT.astype(np.float64)))
    assert_close(back, wanted, 1e-3)
    assert np.abs(back - FLAT).max() > 0.1


def test_columns_that_are_not_chosen_stay_and_come_first(tmp_path: Path) -> None:
    store = save_x(tmp_path / "store", [FLAT])
    made = fit_transforms(store, request(3, ["x1", "x5", "x0", "x2"]))
    done = apply_all(made, FLAT, None)
    assert results_of(store.schema, made, "x")[0] == ("x3", "x4", "pca0", "pca1", "pca2")
    np.testing.assert_array_equal(done[:, :2], FLAT[:, [3, 4]])
    assert_close(invert_all(made, done), FLAT)


def test_blocks_give_nearly_the_same_whatever_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = save_x(tmp_path / "store", np.split(FLAT, [10, 11, 500, 505]))
    whole = apply_all(fit_transforms(store, request(3)), FLAT, None)
    monkeypatch.setattr(fitting, "_NUMBERS", 6 * 13)
    monkeypatch.setattr(principal, "_PRODUCT", 18 * 17)
    made = fit_transforms(store, request(3))
    assert_close(np.abs(apply_all(made, FLAT, None)), np.abs(whole), 1e-3)
    assert_close(invert_all(made, apply_all(made, FLAT, None)), FLAT, 1e-4)


def test_fewer_steps_than_components_are_refused(tmp_path: Path) -> None:
    with pytest.raises(lowtide.LowtideError, match="3 components of 2 steps"):
        fit_transforms(save_x(tmp_path / "store", [FLAT[:2]]), request(3))
