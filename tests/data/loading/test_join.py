"""Predictions on parts come together per sequence, in whatever order the parts come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lowtide.data import Store
from lowtide.data.loading.join import How
from lowtide.data.loading.loader import Loader
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError
from tests.data.loading_cases import told

LENGTHS = [4, 0, 9, 30, 2, 17]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS, tmp_path_factory.mktemp("join") / "store")


def joined(loader: Loader, how: How, predict: Any) -> dict[int, Any]:  # noqa: ANN401 - a function of a batch
    joiner = loader.joiner(how)
    found = dict(pair for batch in loader for pair in joiner.add(batch, predict(batch)))
    assert joiner.pending == 0
    return found


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("size", "stride"), [(7, 3), (7, 7), (40, 40)])
def test_predictions_per_step_come_to_their_steps(store: Store, size: int, stride: int, batch_first: bool) -> None:
    loader = Loader.of(store, batch_size=3, windows=Windows(size, stride), batch_first=batch_first)
    found = joined(loader, "steps", lambda batch: batch.inputs)
    assert sorted(found) == [0, 2, 3, 4, 5]
    for number, prediction in found.items():
        assert prediction[:, 0].tolist() == [number] * LENGTHS[number]
        assert prediction[:, 1].tolist() == list(range(LENGTHS[number]))


def test_overlapping_predictions_are_averaged_and_steps_between_windows_have_none(store: Store) -> None:
    overlapping = Loader.of(store, batch_size=4, windows=Windows(6, 3), framework="numpy")
    found = joined(
        overlapping, "steps", lambda batch: np.broadcast_to(batch.start[:, None], (batch.size, batch.steps)) * 1.0
    )
    assert found[2].tolist() == [0] * 3 + [1.5] * 3 + [3] * 3
    apart = Loader.of(store, batch_size=4, windows=Windows(2, 4), framework="numpy")
    found = joined(apart, "steps", lambda batch: batch.inputs[:, :, 1])
    np.testing.assert_array_equal(found[2], [0, 1, np.nan, np.nan, 4, 5, np.nan, np.nan, 8])
    whole = joined(apart, "steps", lambda batch: batch.targets)
    assert whole[2].tolist() == [2, 3, 0, 0, 6, 0, 0, 0, 3]


def test_predictions_per_row_are_averaged_or_kept_in_order(store: Store) -> None:
    loader = Loader.of(store, batch_size=4, windows=Windows(5, 5), shuffle=True)
    first_steps = joined(loader, "each", lambda batch: batch.start)
    assert first_steps[3].tolist() == [0, 5, 10, 15, 20, 25]
    means = joined(loader, "mean", lambda batch: torch.stack([batch.start * 1.0, batch.index * 2.0], 1))
    assert means[3].tolist() == [12.5, 6]
    assert means[4].tolist() == [0, 8]


def test_in_order_few_sequences_are_open_at_a_time(store: Store) -> None:
    loader = Loader.of(store, batch_size=2, windows=Windows(4, 4), shuffle=False)
    joiner = loader.joiner("mean")
    open_at_most = 0
    for batch in loader:
        list(joiner.add(batch, batch.start * 1.0))
        open_at_most = max(open_at_most, joiner.pending)
    assert open_at_most == 1


def test_a_prediction_may_be_packed_or_of_half_precision(store: Store) -> None:
    loader = Loader.of(store, batch_size=3, windows=Windows(7, 3), packed=True)
    found = joined(loader, "steps", lambda batch: batch.inputs)
    assert found[3][:, 1].tolist() == list(range(30))
    loader = Loader.of(store, batch_size=3, windows=Windows(7, 7))
    assert joined(loader, "mean", lambda batch: batch.start.bfloat16())[2].tolist() == 3.5


def test_what_is_added_counts_whether_or_not_its_results_are_looked_at(store: Store) -> None:
    loader = Loader.of(store, batch_size=2, windows=Windows(4), shuffle=False)
    joiner = loader.joiner("mean")
    first, second, *_ = loader
    joiner.add(first, first.start * 1.0)
    assert joiner.pending == 1
    assert next(joiner.add(second, second.start * 1.0))[0] == 2


def test_a_row_that_comes_twice_is_refused(store: Store) -> None:
    loader = Loader.of(store, batch_size=2, windows=Windows(4))
    joiner = loader.joiner("mean")
    batch = next(iter(loader))
    joiner.add(batch, batch.start * 1.0)
    with pytest.raises(LowtideError, match=r"row from step \d+ on came twice"):
        joiner.add(batch, batch.start * 1.0)


@pytest.mark.parametrize(
    ("how", "outputs", "said"),
    [
        ("mean", np.zeros(5), r"shape \(5,\) for a batch of 4 rows"),
        ("steps", np.zeros((4, 99)), r"shape \(4, 99\)"),
        ("steps", np.zeros(4), r"shape \(4,\)"),
        ("median", np.zeros(4), "how='median'"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(store: Store, how: Any, outputs: Any, said: str) -> None:  # noqa: ANN401 - drawn
    loader = Loader.of(store, batch_size=4, windows=Windows(5))
    with pytest.raises(LowtideError, match=said):
        list(loader.joiner(how).add(next(iter(loader)), outputs))
