"""Stateful steps: each lane goes on from its own last valid step, or begins anew exactly as at a sequence's start."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn import CausalConv1d, Pool
from lowtide.nn.losses import mse
from lowtide.nn.pool import How
from lowtide.step._lanes import Lanes
from tests.step.models import gradients, relative_error

WIDTH, STEPS = 3, 20


def drawn() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    inputs, targets = torch.randn(2, STEPS, 3, WIDTH, dtype=torch.float64)
    return inputs, targets


class Pooled(nn.Module):
    """Its pooled features are far below zero."""

    def __init__(self, how: How) -> None:
        super().__init__()
        self.front = nn.Linear(WIDTH, WIDTH)
        self.pool = Pool(how, WIDTH if how == "attention" else None)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.front(x) - 9.0)
        return pooled


@pytest.mark.parametrize("how", ["last", "mean", "max", "attention"])
def test_a_pool_begins_anew_as_at_the_start_of_a_sequence(how: How) -> None:
    model, (inputs, targets) = Pooled(how).double(), drawn()
    step = lowtide.StreamStep(model, mse, chunk_steps=6, batch_first=False, stateful=True)
    first = step(inputs, targets[0])
    expected = gradients(model)
    step(inputs, targets[0])
    model.zero_grad()
    step.reset([True, True, True])
    assert float(step(inputs, targets[0])) == pytest.approx(float(first), rel=1e-12)
    assert relative_error(gradients(model), expected) < 1e-12


def test_a_convolution_goes_on_from_the_last_valid_steps_of_each_lane() -> None:
    inputs, targets = drawn()
    model = nn.Sequential(CausalConv1d(WIDTH, WIDTH, 3, dilation=2)).double()
    lengths = (10, 4, 1)
    for lane, length in enumerate(lengths):
        inputs[length:10, lane] = 1e3  # padding
    step = lowtide.StreamStep(model, mse, chunk_steps=4, batch_first=False, stateful=True)
    step(inputs[:10], targets[:10], lengths=lengths)
    model.zero_grad()
    step(inputs[10:], targets[10:])
    found = gradients(model)
    joined = [torch.cat([inputs[:length, lane], inputs[10:, lane]]) for lane, length in enumerate(lengths)]
    outputs = torch.cat([model(sequence[:, None])[-10:] for sequence in joined], 1)
    mse(outputs, targets[10:]).mean().backward()  # type: ignore[no-untyped-call] # torch ships it so
    assert relative_error(found, gradients(model)) < 1e-12


class Total(nn.Module):
    """A running sum that counts padding too, if told so."""

    def __init__(self, *, blind: bool) -> None:
        super().__init__()
        self.front = nn.Linear(WIDTH, WIDTH)
        self.blind = blind

    def forward(self, x: Tensor) -> Tensor:
        rows = self.front(x)
        (before,) = lowtide.nn.carry_in(self, (torch.zeros_like(rows[0]),))
        lengths = lowtide.nn.valid_lengths(*rows.shape[:2])
        if self.blind and lengths is not None:
            rows = torch.where((torch.arange(len(rows))[:, None] < lengths)[..., None], rows, 0)
        sums: Tensor = before + rows.cumsum(0)
        lowtide.nn.carry_out(self, (sums[-1],))
        return sums


def test_a_state_that_has_seen_padding_is_refused_where_it_would_be_carried_on() -> None:
    inputs, targets = drawn()
    lengths = [20, 11, 3]
    options = {"chunk_steps": 6, "batch_first": False}
    lowtide.StreamStep(Total(blind=False).double(), mse, **options)(inputs, targets, lengths=lengths)  # type: ignore[arg-type]
    with pytest.raises(lowtide.LowtideError, match=r"Total.* another state"):
        lowtide.StreamStep(Total(blind=False).double(), mse, stateful=True, **options)(  # type: ignore[arg-type]
            inputs, targets, lengths=lengths
        )
    step = lowtide.StreamStep(Total(blind=True).double(), mse, stateful=True, **options)  # type: ignore[arg-type]
    step(inputs, targets, lengths=lengths)
    assert step.state is not None
    rows = torch.arange(STEPS)[:, None] < torch.tensor(lengths)
    model = step._model.module  # noqa: SLF001 - the state of one of its modules
    assert isinstance(model, Total)
    expected = (model.front(inputs) * rows[..., None]).sum(0)
    torch.testing.assert_close(step.state[":0"][0], expected)


def test_lanes_told_to_begin_anew_are_part_of_the_state() -> None:
    inputs, targets = drawn()
    model = lowtide.nn.LSTM(WIDTH, WIDTH).double()
    one = lowtide.StreamStep(model, mse, chunk_steps=6, stateful=True)
    one(inputs, targets)
    one.reset([False, True, False])
    one.reset(np.array([False, False, True]))
    saved = io.BytesIO()
    torch.save(one.state, saved)
    saved.seek(0)
    other = lowtide.StreamStep(model, mse, chunk_steps=6, stateful=True)
    other.state = torch.load(saved, weights_only=True)
    model.zero_grad()
    one(inputs, targets)
    expected = gradients(model)
    other(inputs, targets)
    assert relative_error(gradients(model), expected) == 0
    plain = lowtide.StreamStep(model, mse, chunk_steps=6)
    plain(inputs, targets)
    assert relative_error(gradients(model), expected) > 1e-3


@pytest.mark.parametrize(
    "lanes", [[True, False], torch.tensor([1]), torch.tensor([0, 1, 1]), [[True, False, True]], np.zeros(3)]
)
def test_lanes_that_are_not_one_truth_value_each_are_refused(lanes: Lanes) -> None:
    step = lowtide.StreamStep(lowtide.nn.GRU(WIDTH, WIDTH).double(), mse, stateful=True)
    step(*drawn())
    with pytest.raises(lowtide.LowtideError, match="3 sequences"):
        step.reset(lanes)


def test_saved_lanes_of_another_batch_are_refused() -> None:
    step = lowtide.StreamStep(lowtide.nn.GRU(WIDTH, WIDTH).double(), mse, stateful=True)
    step(*drawn())
    step.reset([True, False, False])
    step.state = dict(step.state or {}) | {"begins anew": torch.tensor([True, False])}
    with pytest.raises(lowtide.LowtideError, match="3 sequences"):
        step(*drawn())


class Folded(nn.Module):
    """Runs each feature through a layer by itself, so that there are more lanes than sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = lowtide.nn.GRU(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        steps, lanes, features = x.shape
        rows: Tensor = self.layer(x.reshape(steps, lanes * features, 1))[0]
        return rows.view(steps, lanes, 2 * features)


def test_lanes_inside_of_lanes_are_carried_between_windows_and_calls() -> None:
    model, (inputs, targets) = Folded().double(), drawn()
    doubled = torch.cat([targets, targets], -1)
    state, total = None, torch.zeros((), dtype=torch.float64)
    for start in range(0, STEPS, 7):
        part = inputs[start : start + 7]
        rows, state = model.layer(part.reshape(len(part), 9, 1), None if state is None else state.detach())
        total = total + mse(rows.view(len(part), 3, 6), doubled[start : start + 7]).sum()
    (total / (STEPS * 3)).backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    step = lowtide.StreamStep(model, mse, chunk_steps=3, window_steps=7, stateful=True)
    step(inputs, doubled)
    assert relative_error(gradients(model), expected) < 1e-12
    step(inputs, doubled)
    step.reset([True, False, False])
    with pytest.raises(lowtide.LowtideError, match="3 lanes"):
        step(inputs, doubled)


class Letters(nn.Module):
    """A layer over the letters of each word, and one over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(9, WIDTH)
        self.words, self.text = lowtide.nn.GRU(WIDTH, WIDTH), lowtide.nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        steps, lanes, letters = x.shape
        spelt = self.letters(x).view(steps * lanes, letters, WIDTH).transpose(0, 1)
        words = self.words(spelt)[1][-1].view(steps, lanes, WIDTH)
        outputs: Tensor = self.text(words)[0]
        return outputs


@pytest.mark.parametrize("chunk_steps", [1, 5, 6, 50])  # 5 letters a word
def test_layers_inside_of_each_step_carry_nothing(chunk_steps: int) -> None:
    model, (_, targets) = Letters().double(), drawn()
    words = torch.randint(9, (STEPS, 3, 5))
    mse(model(words), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    step = lowtide.StreamStep(model, mse, chunk_steps=chunk_steps, stateful=True)
    step(words, targets)
    assert relative_error(gradients(model), expected) < 1e-12
    assert list(step.state or {}) == ["text:0"]
