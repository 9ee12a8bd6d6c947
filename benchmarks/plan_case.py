"""Drawn training tasks of many kinds: model, data, batch size, optimizer, precision and how tight the budget is."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import lowtide
from lowtide.memory import held

Head = Literal["per step", "pooled", "vocabulary"]

_LEAST = 72 << 20
"""Bytes beside two interpreters, and what a child's first step makes of the parameters, without which planning has no
room."""
_MOST_WORK = 1.2e12
"""Floating-point operations of the largest batch: seconds, not hours."""
_LEAST_GRAPH = 150e6
"""Bytes that the backward pass of the largest batch wants: what the libraries alone take proves nothing."""
_MOST_GRAPH = 12e9
_MOST_LOGITS = 6e9
"""Bytes of one copy of a whole batch's logits."""


@dataclass(frozen=True)
class Case:
    """One task."""

    number: int
    cell: Literal["LSTM", "GRU", "RNN"]
    lean: bool
    layers: int
    hidden: int
    inputs: int
    head: Head
    classes: int
    lengths: Literal["constant", "uniform", "log-normal", "tail"]
    typical: int
    """Steps of a sequence of middling length."""
    batch_size: int
    optimizer: Literal["SGD", "Adam", "AdamW"]
    precision: Literal["float32", "bfloat16"]
    room: float
    """The budget, in multiples of the least that anything fits into."""

    def __str__(self) -> str:
        kind = f"{'lean' if self.lean else 'stock'} {self.cell} L{self.layers} H{self.hidden} I{self.inputs}"
        head = f"{self.head} {self.classes}"
        return (
            f"{kind} {head}, {self.lengths} {self.typical}, B{self.batch_size}, {self.optimizer}, {self.precision}, "
            f"{self.room:g} x floor"
        )

    def sequence_lengths(self) -> NDArray[np.int64]:
        """The data: four batches' worth of sequences."""
        random_numbers = np.random.default_rng(self.number)
        count = 4 * self.batch_size
        if self.lengths == "constant":
            return np.full(count, self.typical)
        if self.lengths == "uniform":
            return random_numbers.integers(max(1, self.typical // 4), 2 * self.typical, count)
        found = np.exp(random_numbers.normal(math.log(self.typical), 0.8, count)).astype(np.int64).clip(2, 50_000)
        if self.lengths == "tail":
            found[: max(1, count // 100)] = 50_000
        return found

    def model(self) -> nn.Module:
        """The model, on the CPU."""
        torch.manual_seed(self.number)
        made = _Model(self)
        return lowtide.lean(made) if self.lean else made

    def loss(self) -> Any:  # noqa: ANN401 - a loss of lowtide.nn.losses
        """The loss."""
        losses = lowtide.nn.losses
        return losses.mse if self.head == "per step" else losses.cross_entropy

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer."""
        made: torch.optim.Optimizer = getattr(torch.optim, self.optimizer)(model.parameters(), lr=1e-4)
        return made

    def question(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """What `lowtide.plan` and `lowtide.fits` are asked, but for the budget."""
        lengths = self.sequence_lengths()
        return {
            "optimizer": optimizer,
            "sample": self.batch(min(4, self.batch_size), int(min(lengths.max(), 64)), seed=0),
            "lengths": lengths,
            "batch_size": self.batch_size,
            "precision": self.precision,
        }

    def budget(self, model: nn.Module, floor: int) -> int:
        """The budget, from the least that anything fits into and what planning itself needs."""
        parameters = sum(one.numel() * one.element_size() for one in model.parameters())
        return int(max(floor, 2 * held() + _LEAST + 4 * parameters) * self.room)

    def batch(self, rows: int, steps: int, *, seed: int) -> dict[str, Any]:
        """A batch padded to so many steps, its sequences a little shorter."""
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.full((rows,), steps)
        if self.lengths != "constant":
            lengths = torch.randint(max(1, steps * 3 // 4), steps + 1, (rows,), generator=generator)
            lengths[0] = steps
        if self.head == "vocabulary":
            inputs = torch.randint(0, self.classes, (rows, steps), generator=generator)
            targets = torch.randint(0, self.classes, (rows, steps), generator=generator)
        else:
            inputs = torch.randn((rows, steps, self.inputs), generator=generator)
            pooled = self.head == "pooled"
            targets = (
                torch.randint(0, self.classes, (rows,), generator=generator)
                if pooled
                else torch.randn((rows, steps, self.classes), generator=generator)
            )
        made = {"inputs": inputs, "targets": targets}
        return made if self.lengths == "constant" else {**made, "lengths": lengths}


class _Model(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.embedding = nn.Embedding(case.classes, case.inputs) if case.head == "vocabulary" else nn.Identity()
        kind = getattr(nn, case.cell)
        self.rnn = kind(case.inputs, case.hidden, case.layers, batch_first=True)
        self.pool = lowtide.nn.Pool("last", batch_first=True) if case.head == "pooled" and case.lean else None
        self.last = case.head == "pooled" and not case.lean
        self.head = nn.Linear(case.hidden, case.classes)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y: Tensor = self.rnn(self.embedding(x))[0]
        if self.pool is not None:
            y = self.pool(y)
        elif self.last:
            at = torch.full((len(y),), y.shape[1]) if lengths is None else lengths
            y = y[torch.arange(len(y)), at - 1]
        logits: Tensor = self.head(y)
        return logits


def draw_case(number: int) -> Case:
    """The case of a number: the same on every machine."""
    chance = random.Random(number)  # noqa: S311 - not for secrets
    while True:
        lean = chance.random() < 0.8  # noqa: PLR2004 - four of five
        head: Head = chance.choice(("per step", "pooled", "vocabulary"))
        case = Case(
            number=number,
            cell=chance.choice(("LSTM", "LSTM", "GRU", "RNN")),
            lean=lean,
            layers=chance.randint(1, 4),
            hidden=round(2 ** chance.uniform(5, math.log2(768))),
            inputs=round(2 ** chance.uniform(0, 8)),
            head=head,
            classes=round(10 ** chance.uniform(2, math.log10(30_000)))
            if head == "vocabulary"
            else chance.randint(1, 40),
            lengths=chance.choice(("constant", "uniform", "log-normal", "tail")) if lean else "constant",
            typical=round(10 ** chance.uniform(1.3, 3.5)),
            batch_size=round(2 ** chance.uniform(3, 9)),
            optimizer=chance.choice(("SGD", "Adam", "AdamW")),
            precision="bfloat16" if chance.random() < 0.15 else "float32",  # noqa: PLR2004 - about one of seven
            room=chance.choice((1.02, 1.1, 1.3, 1.6, 2.0, 3.0)),
        )
        if _affordable(case):
            return case


def _affordable(case: Case) -> bool:
    steps = float(case.sequence_lengths().max()) * case.batch_size
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[case.cell]
    recurrent = gates * case.hidden * (case.hidden * (2 * case.layers - 1) + case.inputs)
    head = 0 if case.head == "pooled" else case.hidden * case.classes
    logits = 4 * steps * case.classes if case.head == "vocabulary" else 0.0
    graph = 4 * steps * case.hidden * case.layers * (gates + 2)
    return (
        6 * steps * (recurrent + head) <= _MOST_WORK and logits <= _MOST_LOGITS and _LEAST_GRAPH <= graph <= _MOST_GRAPH
    )
