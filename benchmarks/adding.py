"""The adding problem (Hochreiter and Schmidhuber 1997): which truncated back-propagation cannot learn.

Each step has a number between 0 and 1 and a mark. Two steps of a sequence are marked, at least half the sequence apart,
and the target is the sum of their numbers. Always saying 1 is off by 1/6 in the mean square. To do better, what is seen
at the marks must be remembered until the end, and the gradient has to come all the way back to them. The last fifth of
a sequence has no mark: a gradient that ends there would otherwise learn from second marks what to do at first ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn import Pool
from lowtide.nn.losses import mse

BASELINE = 1 / 6
"""The mean square error of always saying 1."""


class Adder(nn.Module):
    """An LSTM that reads the whole sequence, and a linear head on its last output."""

    def __init__(self, hidden: int, memory_steps: int) -> None:
        """Make the layers, the LSTM's gates biased towards remembering over up to `memory_steps` steps.

        The biases are those of Tallec and Ollivier 2018 (arXiv:1804.11188): forget gates at log(uniform(1, T)), input
        gates at the opposite.
        """
        super().__init__()
        self.layers = lowtide.nn.LSTM(2, hidden)
        self.pool = Pool("last")
        self.head = nn.Linear(hidden, 1)
        with torch.no_grad():
            biases = torch.empty(hidden).uniform_(1, memory_steps - 1).log()
            named = dict(self.layers.named_parameters())
            named["bias_hh_l0"].zero_()
            named["bias_ih_l0"].copy_(torch.cat([-biases, biases, torch.zeros(2 * hidden)]))

    def forward(self, x: Tensor) -> Tensor:
        """From (T, B, 2) to (B, 1)."""
        outputs: Tensor = self.head(self.pool(self.layers(x)[0]))
        return outputs


def draw(steps: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs, (T, B, 2), and targets, (B, 1)."""
    apart, end = steps // 2, steps - steps // 5
    numbers = torch.rand(steps, batch, generator=generator)
    first = torch.randint(0, end - apart, (batch,), generator=generator)
    second = first + apart + (torch.rand(batch, generator=generator) * (end - apart - first)).long()
    marks = torch.zeros(steps, batch)
    lanes = torch.arange(batch)
    marks[first, lanes] = marks[second, lanes] = 1
    targets = numbers[first, lanes] + numbers[second, lanes]
    return torch.stack([numbers, marks], -1), targets[:, None]


def learn(
    *,
    steps: int,
    window_steps: int | None,
    batch: int = 32,
    hidden: int = 32,
    rounds: int = 800,
    chunk_steps: int = 256,
    learning_rate: float = 3e-2,
) -> Iterator[float]:
    """Train, and yield each round's error on sequences that were not seen before."""
    torch.manual_seed(0)
    model = Adder(hidden, steps)
    step = lowtide.StreamStep(model, mse, chunk_steps=chunk_steps, window_steps=window_steps)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    generator = torch.Generator().manual_seed(1)
    for round_number in range(rounds):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * round_number / rounds))
        optimizer.zero_grad()
        yield float(step(*draw(steps, batch, generator)))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
