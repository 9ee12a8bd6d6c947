"""Fitting reads the training part in blocks, and what a block holds moves no number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.transforming import fitting
from lowtide.data.transforming.fitting import blocks_of, of_at_least
from lowtide.data.transforms import fit_transforms
from tests.data.transforming_cases import save_x

SEQUENCES = [
    np.random.default_rng(seed).normal(size=(steps, 3)).astype(np.float32) for seed, steps in enumerate([7, 1, 40, 3])
]


@pytest.mark.parametrize("numbers", [3, 12, 60, 1 << 20])
def test_blocks_hold_every_step_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    monkeypatch.setattr(fitting, "_NUMBERS", numbers)
    monkeypatch.setattr(fitting, "_SEQUENCES", 3)
    store = save_x(tmp_path / "store", SEQUENCES)
    blocks = list(blocks_of(store, store.schema.field("x")))
    assert np.array_equal(np.concatenate([values for values, _ in blocks]), np.concatenate(SEQUENCES))
    assert np.array_equal(np.concatenate([rows for _, rows in blocks]), np.repeat(range(4), [7, 1, 40, 3]))
    assert max(len(values) for values, _ in blocks) <= numbers // 3


@pytest.mark.parametrize("kind", ["standard", "minmax", {"kind": "pca", "components": 3}])
def test_small_blocks_find_what_large_ones_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object) -> None:
    store = save_x(tmp_path / "store", SEQUENCES)
    whole = fit_transforms(store, {"x": kind})[0].apply(SEQUENCES[2])
    monkeypatch.setattr(fitting, "_NUMBERS", 30)
    parts = fit_transforms(store, {"x": kind})[0].apply(SEQUENCES[2])
    assert np.allclose(np.abs(whole), np.abs(parts), atol=1e-5)


@given(lengths=st.lists(st.integers(1, 9), max_size=8), least=st.integers(1, 12))
def test_blocks_are_brought_together_until_they_have_enough_rows(lengths: list[int], least: int) -> None:
    blocks = [np.full((length, 1), float(number)) for number, length in enumerate(lengths)]
    made = list(of_at_least(iter(blocks), least))
    assert np.array_equal(np.concatenate([np.zeros((0, 1)), *made]), np.concatenate([np.zeros((0, 1)), *blocks]))
    assert all(len(block) >= min(least, sum(lengths)) for block in made)
