"""Models that draw numbers, in training or always, are taken, and draw the same in both passes of a step."""
# ruff: noqa: D102, D107, NPY002, S311 - small models, which draw from global generators as users' do

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.nn.losses import mse
from tests.step.models import gradients, relative_error

WIDTH, STEPS = 4, 30
INPUTS, TARGETS = torch.randn(2, STEPS, 3, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
GENERATOR = torch.Generator()


class Drawing(nn.Module):
    """Does something random between a layer and a head."""

    def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.act(self.layers(x)[0]))
        return outputs


ACTS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise": lambda x: x + 0.1 * torch.randn_like(x),
    "dropout": lambda x: F.dropout(x, 0.9, training=True),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "drawn slopes": lambda x: F.rrelu(x, training=True),
    "gumbel": F.gumbel_softmax,
    "a layer left out": lambda x: x if torch.rand(()) < 0.5 else 2 * x,
    "drawn choices": lambda x: x * torch.multinomial(x.softmax(-1).flatten(0, 1), 1).view(*x.shape[:2], 1),
    "sampled": lambda x: x + torch.bernoulli(x.sigmoid()),
    "features in any order": lambda x: x[..., torch.randperm(WIDTH)],
    "a generator of its own": lambda x: x * torch.rand(x.shape, generator=GENERATOR, dtype=x.dtype),
    "Python's generator": lambda x: x if random.random() < 0.5 else 2 * x,
    "Python's gauss": lambda x: x * random.gauss(1.0, 0.3),
    "NumPy's generator": lambda x: x * np.random.normal(1.0, 0.3),
}


def seed(number: int) -> None:
    for plant in (torch.manual_seed, random.seed, np.random.seed, GENERATOR.manual_seed):
        plant(number)


def drawn_next() -> list[float]:
    """Where all generators stand."""
    return [float(torch.rand(())), random.random(), np.random.rand(), float(torch.rand((), generator=GENERATOR))]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ACTS)
def test_the_second_pass_draws_what_the_first_drew(kind: str, *, training: bool) -> None:
    model = Drawing(ACTS[kind]).double().train(training)
    found, after = [], []
    for keep_chunks in (0, STEPS):  # with all graphs kept nothing is drawn twice
        seed(3)
        lowtide.StreamStep(model, mse, chunk_steps=1, keep_chunks=keep_chunks)(INPUTS, TARGETS)
        after.append(drawn_next())
        found.append(gradients(model))
    assert relative_error(*found) < 1e-12
    assert after[0] == after[1], "all generators stand where one forward leaves them"


def test_drawing_in_another_order_of_time_is_seen() -> None:
    model = Drawing(lambda x: x[torch.randperm(len(x))]).double()
    with pytest.raises(lowtide.LowtideError, match="Drawing"):
        lowtide.StreamStep(model, mse, chunk_steps=7)(INPUTS, TARGETS)


def test_numbers_for_each_step_from_numpy_are_refused_with_that_reason() -> None:
    model = Drawing(lambda x: x + torch.from_numpy(np.random.randn(*x.shape))).double()
    with pytest.raises(lowtide.LowtideError) as refusal:
        lowtide.StreamStep(model, mse, chunk_steps=7)(INPUTS, TARGETS)
    assert "numpy.random" in refusal.value.fix


def test_trying_a_model_moves_no_generator() -> None:
    def nothing_drawn(x: Tensor) -> Tensor:
        return x

    seed(5)
    expected = drawn_next()
    for act in (nothing_drawn, ACTS["dropout"], ACTS["NumPy's generator"], ACTS["a generator of its own"]):
        model = Drawing(act).double()
        seed(5)
        with pytest.raises(lowtide.LowtideError, match="loss"):  # refused once the model was tried
            lowtide.StreamStep(model, lambda o, t: mse(o, t).mean())(INPUTS, TARGETS)
        assert drawn_next() == expected


class Normalised(nn.Module):
    """BatchNorm over time behind something random."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        dropped = F.dropout(self.layers(x)[0], 0.1, self.training)
        outputs: Tensor = self.norm(dropped.permute(1, 2, 0)).permute(2, 0, 1)
        return outputs


def test_randomness_does_not_hide_what_mixes_time_in_training_alone() -> None:
    with pytest.raises(lowtide.LowtideError, match="'norm'"):
        lowtide.StreamStep(Normalised().double(), mse, chunk_steps=7)(INPUTS, TARGETS)


def test_a_model_tried_in_evaluation_is_tried_again_in_training() -> None:
    model = Normalised().double().eval()
    step = lowtide.StreamStep(model, mse, chunk_steps=7)
    step(INPUTS, TARGETS)
    model.train()
    with pytest.raises(lowtide.LowtideError, match="'norm'"):
        step(INPUTS, TARGETS)
