"""A short task that exact gradients learn and truncated ones cannot: what matters lies before the last window."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import lowtide
from benchmarks.adding import BASELINE, Adder

STEPS, WINDOW, ROUNDS = 40, 20, 800


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers and two marks in the first half of 64 sequences; the target is the sum of the numbers marked."""
    numbers = torch.rand(STEPS, 64, generator=generator)
    marked = torch.rand(STEPS - WINDOW, 64, generator=generator).argsort(0)[:2]
    marks = torch.zeros(STEPS, 64).scatter_(0, marked, 1.0)
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(0)[:, None]


def error_after_training(window_steps: int | None) -> float:
    """The mean error of the last rounds, each on sequences that were not seen before."""
    torch.manual_seed(0)
    model = Adder(hidden=24, memory_steps=STEPS)
    step = lowtide.StreamStep(model, lowtide.nn.losses.mse, chunk_steps=10, window_steps=window_steps)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS)
    generator = torch.Generator().manual_seed(1)
    errors = []
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        errors.append(float(step(*draw(generator))))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return sum(errors[-20:]) / 20


def test_exact_gradients_learn_what_lies_before_the_last_window() -> None:
    assert error_after_training(None) < 0.01 < BASELINE


def test_truncated_gradients_do_not() -> None:
    assert error_after_training(WINDOW) > 0.1
