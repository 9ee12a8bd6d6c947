"""Standard and min-max scaling give scikit-learn's numbers, also for columns that are constant, far away or few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import lowtide
from lowtide.data.transforms import apply_all, fit_transforms, invert_all, read_transforms
from tests.data.transforming_cases import assert_close, save_x


@given(
    rows=st.integers(1, 300),
    width=st.integers(1, 70),
    low=st.sampled_from([-3.0, 0.0]),
    high=st.sampled_from([0.5, 3.0]),
    seed=st.integers(0),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_numbers_are_those_of_scikit_learn(
    tmp_path_factory: pytest.TempPathFactory, rows: int, width: int, low: float, high: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(5, 3, (rows, width)).astype(np.float32)
    store = save_x(tmp_path_factory.mktemp("affine") / "store", [values])
    scalers: list[tuple[Any, Any]] = [
        ("standard", StandardScaler()),
        ({"kind": "minmax", "low": low, "high": high}, MinMaxScaler((low, high))),
    ]
    for requested, scaler in scalers:
        wanted = scaler.fit_transform(values.astype(np.float64))
        made = fit_transforms(store, {"x": requested})
        done = apply_all(made, values, None)
        assert done.dtype == np.float32
        assert_close(done, wanted)
        assert_close(invert_all(made, done), values)
        assert_close(apply_all(made, values.astype(np.float64), None), wanted, 1e-12)


def test_a_constant_column_becomes_0_or_the_lower_bound_and_comes_back(tmp_path: Path) -> None:
    values = np.stack([np.full(9, 7.25), np.arange(9), np.full(9, 1e30)], axis=1).astype(np.float32)
    store = save_x(tmp_path / "store", [values])
    for requested, bound in (("standard", 0), ({"kind": "minmax", "low": 2, "high": 3}, 2)):
        made = fit_transforms(store, {"x": requested})
        done = apply_all(made, values, None)
        assert done[:, 0].tolist() == [bound] * 9
        assert done[:, 2].tolist() == [bound] * 9
        assert_close(invert_all(made, done)[:, :2], values[:, :2])
        assert_close(invert_all(made, done)[:, 2], values[:, 2])


def test_columns_that_are_not_chosen_stay_bitwise_as_they_are(tmp_path: Path) -> None:
    values = np.random.default_rng(1).lognormal(0, 20, (200, 3)).astype(np.float32)
    made = fit_transforms(save_x(tmp_path / "store", [values]), {"x": {"kind": "standard", "columns": ["x1"]}})
    done = apply_all(made, values, None)
    np.testing.assert_array_equal(done[:, [0, 2]], values[:, [0, 2]])
    assert abs(done[:, 1].std() - 1) < 1e-3


def test_a_small_spread_far_from_0_is_kept_as_far_as_the_data_have_it(tmp_path: Path) -> None:
    values = (1.7e9 + 1e4 * np.random.default_rng(2).normal(size=(500, 1))).astype(np.float32)
    made = fit_transforms(save_x(tmp_path / "store", [values]), "standard")
    wide = values.astype(np.float64)
    wanted = (wide - wide.mean(0)) / wide.std(0)
    # half a rounding of the mean, in standard deviations
    assert np.abs(apply_all(made, values, None) - wanted).max() < 64 / 1e4 * 1.01


def test_numbers_that_float32_does_not_hold_are_refused(tmp_path: Path) -> None:
    values = np.array([[1e100], [3e100]])
    store = save_x(tmp_path / "store", [values], "float64")
    made = fit_transforms(store, "standard")
    assert_close(apply_all(made, values, None), [[-1], [1]])
    with pytest.raises(lowtide.LowtideError, match="exceed float32"):
        apply_all(read_transforms([made[0].to_json()], store.schema), np.ones((2, 1), dtype=np.float32), None)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_deviation_without_a_square_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lowtide.LowtideError, match="exceeds float64"):
        fit_transforms(save_x(tmp_path / "store", [np.array([[1e300], [3e300]])], "float64"), "standard")
