"""Each sequence is scaled by its own numbers, alone, and by the same numbers comes back."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.transforming import per_sequence
from lowtide.data.transforming.per_sequence import PerSequence
from lowtide.data.transforms import apply_all, fit_transforms, invert_all, sequence_numbers
from tests.data.transforming_cases import assert_close, save_x

TRANSFORM = PerSequence("x", ("a", "b", "c"), ("a", "c"), scalar=False)


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(0, 1000))
def test_every_sequence_has_mean_0_and_deviation_1_in_the_chosen_columns(lengths: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    values = np.concatenate([random.normal(size=(0, 3)), *(random.normal(9, 4, (steps, 3)) for steps in lengths)])
    values = values.astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    done = TRANSFORM.apply(values, offsets)
    np.testing.assert_array_equal(done[:, 1], values[:, 1])
    for start, stop in itertools.pairwise(offsets):
        alone = TRANSFORM.apply(values[start:stop], np.array([0, stop - start]))
        np.testing.assert_array_equal(alone, done[start:stop])
        if stop - start > 1:
            steps = done[start:stop].astype(np.float64)
            np.testing.assert_allclose(steps[:, [0, 2]].mean(0), 0, atol=1e-5)
            np.testing.assert_allclose(steps[:, [0, 2]].std(0), 1, atol=1e-5)
        elif stop - start == 1:
            assert done[start, [0, 2]].tolist() == [0, 0]


def test_padded_predictions_come_back_by_the_numbers_of_their_sequences() -> None:
    values = np.random.default_rng(0).normal([3, 0, 900], [1, 1, 40], (30, 3)).astype(np.float32)
    offsets = np.array([0, 10, 10, 30])
    numbers = sequence_numbers((TRANSFORM,), values, offsets)
    done = TRANSFORM.apply(values, offsets)
    padded = np.zeros((3, 20, 3), dtype=np.float32)
    padded[0, :10], padded[2] = done[:10], done[10:]
    back = invert_all((TRANSFORM,), padded, numbers=numbers)
    assert_close(back[0, :10], values[:10])
    assert_close(back[2], values[10:])
    last = invert_all((TRANSFORM,), padded[:, 9], numbers=numbers)
    assert_close(last[0], values[9])
    some = invert_all((TRANSFORM,), padded[..., [2, 0]], columns=["c", "a"], numbers=numbers)
    assert_close(some[2], values[10:, [2, 0]])


def test_a_constant_sequence_becomes_0() -> None:
    values = np.full((50, 3), 16_777_215.0, dtype=np.float32)
    values[:, 2] = 0.1
    values[::2, 2] = np.nextafter(np.float32(0.1), np.float32(1))  # a rounding is no deviation
    done = TRANSFORM.apply(values, np.array([0, 50]))
    assert np.abs(done[:, [0, 2]]).max() < 1e-6


def test_long_sequences_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(1e3, 1, (1_000, 3)).astype(np.float32)
    whole = TRANSFORM.apply(values, np.array([0, 1_000]))
    monkeypatch.setattr(per_sequence, "_NUMBERS", 7)
    assert_close(TRANSFORM.apply(values, np.array([0, 1_000])), whole)


def test_numbers_behind_another_transform_are_of_what_it_gives(tmp_path: Path) -> None:
    made = [np.random.default_rng(number).lognormal(2, 1, (20, 2)).astype(np.float32) for number in range(3)]
    chain = fit_transforms(save_x(tmp_path / "store", made), {"x": ["log1p", "per_sequence"]})
    values, offsets = np.concatenate(made), np.array([0, 20, 40, 60])
    before = values.copy()
    numbers = sequence_numbers(chain, values, offsets)
    np.testing.assert_array_equal(values, before)
    assert numbers[0] is None
    assert numbers[1] is not None
    assert_close(numbers[1][1, 0], np.log1p(made[1].astype(np.float64)).mean(0))
    done = apply_all(chain, values, offsets)
    assert_close(invert_all(chain, done.reshape(3, 20, 2), numbers=numbers), np.stack(made))


def test_a_field_without_columns_is_scaled_as_well() -> None:
    transform = PerSequence("y", ("y",), ("y",), scalar=True)
    values = np.array([1.0, 3.0, 10.0])
    offsets = np.array([0, 2, 3])
    done = transform.apply(values, offsets)
    assert done.tolist() == [-1, 1, 0]
    back = invert_all(
        (transform,), np.array([[-1.0, 1.0], [0.0, 2.0]]), numbers=sequence_numbers((transform,), values, offsets)
    )
    assert back.tolist() == [[1, 3], [10, 12]]
