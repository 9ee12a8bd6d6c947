"""A torch Dataset that exists already gets length-aware, padded batches, and a place to go back to."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

import lowtide
from lowtide.data.batch import Batch
from lowtide.errors import LowtideError
from lowtide.nn.bucketed import bucketed

LENGTHS = [5, 9, 2, 30, 11, 7, 7, 19, 3, 12, 1, 28]


class Told(Dataset[Any]):
    """Sample k holds x = (k, t) of every step t, and whatever else is asked for."""

    def __init__(self, form: str = "pair") -> None:
        """Give samples of a form."""
        self.form = form

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401 - of several forms
        steps = torch.arange(LENGTHS[number])
        x = torch.stack([torch.full_like(steps, number), steps], 1).float()
        return {
            "inputs": x,
            "array": x.numpy(),
            "pair": (x, steps % 3),
            "label": (x, number % 4),
            "vector": (x, np.full(30, number, np.float32)),
            "named": ({"x": x, "shop": torch.tensor(number)}, {"y": steps, "label": number}),
            "triple": (x, x, x),
        }[self.form]


def rows_of(batches: Any) -> list[list[int]]:  # noqa: ANN401 - of batches
    return [batch.index.tolist() for batch in batches]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", ["inputs", "array", "pair", "label", "vector", "named"])
def test_samples_of_every_form_are_padded_and_stacked(form: str, batch_first: bool) -> None:
    seen = []
    for batch in bucketed(Told(form), LENGTHS, batch_size=4, batch_first=batch_first):
        assert isinstance(batch, Batch)
        x = batch.inputs["x"] if form == "named" else batch.inputs
        targets = batch.targets
        for row, (number, steps) in enumerate(zip(batch.index.tolist(), batch.lengths.tolist(), strict=True)):
            of_row = x[row] if batch_first else x[:, row]
            assert steps == LENGTHS[number]
            assert of_row[:steps, 0].tolist() == [number] * steps
            assert of_row[:steps, 1].tolist() == list(range(steps))
            assert not of_row[steps:].any()
            if form == "pair":
                assert (targets[row] if batch_first else targets[:, row])[:steps].tolist() == [
                    t % 3 for t in range(steps)
                ]
            if form == "label":
                assert targets[row] == number % 4
            if form == "vector":
                assert targets[row].tolist() == [number] * 30  # as long as the longest sample
            if form == "named":
                assert (batch.inputs["shop"][row], targets["label"][row]) == (number, number)
        assert x.shape[:2] == ((batch.size, batch.steps) if batch_first else (batch.steps, batch.size))
        assert batch.mask.sum() == batch.valid_steps
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_batches_are_of_nearly_equal_lengths_and_the_largest_comes_first() -> None:
    batches = list(bucketed(Told(), LENGTHS, batch_size=3))
    assert batches[0].lengths.max() == 30
    assert sum(batch.size * batch.steps for batch in batches) < 1.5 * sum(LENGTHS)


@pytest.mark.parametrize(
    "options", [{"max_padded_steps": 60}, {"batch_size": 5, "round_lengths": 8}, {"shuffle": False}]
)
def test_the_loaders_own_settings_hold(options: dict[str, Any]) -> None:
    for batch in bucketed(Told(), LENGTHS, **options):
        assert batch.size * batch.steps <= options.get("max_padded_steps", 10**9)
        assert batch.steps % options.get("round_lengths", 1) == 0
        if "shuffle" in options:
            assert batch.index.tolist() == list(range(len(LENGTHS)))


def test_an_own_collate_function_gets_the_samples() -> None:
    def first_steps(samples: list[tuple[Tensor, Tensor]]) -> Tensor:
        return torch.stack([x[0] for x, _ in samples])

    found = torch.cat(list(bucketed(Told(), LENGTHS, batch_size=5, collate_fn=first_steps)))
    assert sorted(found[:, 0].tolist()) == list(range(len(LENGTHS)))


@given(st.integers(0, 4), st.integers(0, 2))
def test_going_on_from_a_state_gives_the_same_batches(taken: int, epoch: int) -> None:
    first, again = (bucketed(Told(), LENGTHS, batch_size=3) for _ in range(2))
    first.set_epoch(epoch)
    iterator = iter(first)
    for _ in range(taken):
        next(iterator)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert rows_of(again) == rows_of(first)
    assert (first.epoch, again.epoch) == (epoch + 1, epoch + 1)
    assert rows_of(first) == rows_of(again)


@pytest.mark.parametrize(
    ("lengths", "options", "said"),
    [
        ([*LENGTHS[:-1], LENGTHS[-1] + 1], {}, "other data"),
        (LENGTHS, {"seed": 1}, r"seed=0 \(here 1\)"),
        (LENGTHS, {"batch_size": 2}, r"batch_size=3 \(here 2\)"),
        (LENGTHS, {"drop_last": True}, "drop_last=False"),
    ],
)
def test_a_state_of_something_else_is_refused(lengths: list[int], options: dict[str, Any], said: str) -> None:
    state = bucketed(Told(), LENGTHS, batch_size=3).state_dict()
    other = bucketed(Told(), lengths, collate_fn=len, **{"batch_size": 3, **options})
    with pytest.raises(LowtideError, match=said):
        other.load_state_dict(state)
    for wrong in ({}, {**other.state_dict(), "position": {}}):
        with pytest.raises(LowtideError, match=r"no state of this|no place between"):
            other.load_state_dict(wrong)
    with pytest.raises(LowtideError, match="set_epoch"):
        other.set_epoch(-1)


def test_a_loop_inside_of_a_loop_over_the_same_loader_is_refused() -> None:
    loader = bucketed(Told(), LENGTHS, batch_size=3)
    outer = iter(loader)
    next(outer)
    next(iter(loader))
    with pytest.raises(LowtideError, match="a loader is at one place"):
        next(outer)


def test_workers_make_batches_ahead_and_the_state_does_not_count_them() -> None:
    whole = rows_of(bucketed(Told(), LENGTHS, batch_size=2))
    loader = bucketed(Told(), LENGTHS, batch_size=2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    again = bucketed(Told(), LENGTHS, batch_size=2)
    again.load_state_dict(loader.state_dict())
    assert rows_of(again) == whole[1:]
    assert rows_of(iterator) == whole[1:]


def test_each_loop_is_the_next_epoch() -> None:
    loader = bucketed(Told(), LENGTHS, batch_size=3)
    assert len(loader) == 4
    first, second = rows_of(loader), rows_of(loader)
    assert first != second
    loader.set_epoch(0)
    assert rows_of(loader) == first


def test_ranks_have_all_samples_between_them() -> None:
    parts = [rows_of(bucketed(Told(), LENGTHS, batch_size=2, rank=rank, ranks=4)) for rank in range(4)]
    assert {len(part) for part in parts} == {2}
    assert sorted(number for part in parts for batch in part for number in batch) == list(range(len(LENGTHS)))


def test_it_feeds_a_step() -> None:
    model = lowtide.lean(torch.nn.LSTM(2, 3, batch_first=True))
    for batch in bucketed(Told(), LENGTHS, batch_size=4):
        outputs, _ = model(batch.packed().inputs)
        loss = torch.nn.functional.cross_entropy(outputs.data, batch.packed().targets.data)
        assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("dataset", "lengths", "said"),
    [
        (Told(), LENGTHS[:-1], r"shape \(11,\) .* 12 samples"),
        (Told(), [*LENGTHS[:-1], 0], "12 samples"),
        (Told(), np.asarray(LENGTHS, float), "float64"),
        (Told(), [length + 1 for length in LENGTHS], "by lengths"),
        (Told("triple"), LENGTHS, "3 parts"),
        (TensorDataset(torch.ones(12, 1)), LENGTHS, "1 parts"),
    ],
)
def test_lengths_that_are_not_the_samples_are_refused(dataset: Any, lengths: Any, said: str) -> None:  # noqa: ANN401 - drawn
    with pytest.raises(LowtideError, match=said):
        bucketed(dataset, lengths)


def test_one_sample_of_another_length_is_named() -> None:
    lengths = [*LENGTHS]
    lengths[4] = 12
    with pytest.raises(LowtideError, match="sample 4, of 12 steps"):
        list(bucketed(Told(), lengths, batch_size=4))


def test_it_is_a_public_name_that_brings_no_database() -> None:
    program = "import sys, lowtide; assert callable(lowtide.nn.bucketed); assert 'duckdb' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
