"""What a model is tried on: rows that look like the data, from all over it, anew where circumstances change."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.nn.losses import mse
from tests.step.models import gradients, relative_error

WIDTH, STEPS = 4, 80
INPUTS, TARGETS = torch.randn(2, STEPS, 3, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Behind(nn.Module):
    """Does something to what a layer gives."""

    def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layers(x)[0])


class Tokens(nn.Module):
    """Looks at a sequence from its end."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, WIDTH)
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(self.embedding(x.flip(0)))[0]
        return outputs


@pytest.mark.parametrize("reach", [1, 16, 90])
@pytest.mark.parametrize("side", ["left", "right"])
def test_mixing_far_apart_is_seen(reach: int, side: str) -> None:
    def look(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 0, 0, *((reach, 0) if side == "left" else (0, reach))))
        return x + (padded[: len(x)] if side == "left" else padded[reach:])

    with pytest.raises(lowtide.LowtideError, match="Behind"):
        lowtide.StreamStep(Behind(look).double(), mse, chunk_steps=20)(INPUTS, TARGETS)


def test_a_constant_beginning_hides_nothing() -> None:
    tokens = torch.randint(1, 9, (STEPS, 3))
    tokens[:70] = 0
    with pytest.raises(lowtide.LowtideError, match="Tokens"):
        lowtide.StreamStep(Tokens().double(), mse, chunk_steps=20)(tokens, TARGETS)


def test_after_a_batch_that_never_changes_a_model_is_tried_again() -> None:
    model = Tokens().double()
    step = lowtide.StreamStep(model, mse, chunk_steps=20)
    step(torch.zeros(STEPS, 3, dtype=torch.int64), TARGETS)
    with pytest.raises(lowtide.LowtideError, match="Tokens"):
        step(torch.randint(9, (STEPS, 3)), TARGETS)


def test_one_step_of_numbers_is_enough() -> None:
    with pytest.raises(lowtide.LowtideError, match="Behind"):
        lowtide.StreamStep(Behind(lambda x: x.flip(0)).double(), mse)(INPUTS[:1], TARGETS[:1])


class LastOfAll(nn.Module):
    """Takes the last step for the last valid one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x)[0][-1] + x[-1]
        return outputs


def test_a_model_tried_without_padding_is_tried_again_with_it() -> None:
    step = lowtide.StreamStep(LastOfAll().double(), mse, chunk_steps=20)
    step(INPUTS, TARGETS[0])
    with pytest.raises(lowtide.LowtideError, match="padding"):
        step(INPUTS, TARGETS[0], lengths=[80, 80, 12])


class Watching(nn.Module):
    """Notes how many steps it is given and whether all numbers among them are some."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.seen: list[tuple[int, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((len(x), bool(x.isfinite().all())))
        outputs: Tensor = self.layers(x)[0]
        return outputs


def test_padding_is_not_looked_at() -> None:
    inputs, model = INPUTS.clone(), Watching().double()
    inputs[40:, 1] = torch.nan
    inputs[20:, 2] = torch.nan
    lowtide.StreamStep(model, mse, chunk_steps=20)(inputs, TARGETS, lengths=[80, 40, 20])
    tried = [finite for steps, finite in model.seen if steps != 20]
    assert len(tried) > 5
    assert all(tried)
    assert not all(finite for steps, finite in model.seen if steps == 20)


class FewRows:
    """An array that counts the rows read from it."""

    def __init__(self, array: npt.NDArray[np.float64]) -> None:
        self.array, self.shape, self.rows = array, array.shape, 0

    def __getitem__(self, key: slice) -> npt.NDArray[np.float64]:
        part = self.array[key]
        self.rows += len(part)
        return part


def test_no_more_than_a_hundred_rows_are_read_for_it() -> None:
    inputs = FewRows(np.random.default_rng(0).standard_normal((5000, 3, WIDTH)))
    with pytest.raises(lowtide.LowtideError, match="Behind"):
        lowtide.StreamStep(Behind(lambda x: x.flip(0)).double(), mse)(inputs, torch.zeros(5000, 3, WIDTH))
    assert 90 < inputs.rows < 100


def test_minus_infinity_hides_nothing() -> None:
    def masked(x: Tensor) -> Tensor:
        hidden = torch.tensor([False, False, False, True])
        return x.flip(0).masked_fill(hidden, -torch.inf)

    model = Behind(masked).double()
    with pytest.raises(lowtide.LowtideError, match="Behind"):
        lowtide.StreamStep(model, lowtide.nn.losses.cross_entropy)(INPUTS, torch.randint(3, (STEPS, 3)))


def test_a_gradient_that_is_zero_but_for_rounding_is_no_difference() -> None:
    class Softmax(nn.Module):
        """A bias before a softmax over features changes nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
            self.shift = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = (self.layers(x)[0] + self.shift).softmax(-1)
            return outputs

    model = Softmax()
    inputs, targets = INPUTS.float(), TARGETS.float()
    mse(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    lowtide.StreamStep(model, mse, chunk_steps=20)(inputs, targets)
    found = gradients(model)
    for one in (expected, found):
        assert float(one.pop("shift").abs()) < 1e-6
    assert relative_error(found, expected) < 1e-4
