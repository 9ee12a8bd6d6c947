"""Batches and models that the tests of planned steps share, and what plain torch makes of them, one by one."""
# ruff: noqa: D102, D107 - a module's forward needs no docstring

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.nn import Pool
from lowtide.ops.spec import Keep
from lowtide.step import Choice
from tests.step.models import gradients

INPUTS, HIDDEN, CLASSES, IGNORED = 3, 4, 5, -7


@dataclass(frozen=True)
class Plan:
    """The least that a step needs."""

    choices: tuple[Choice, ...]
    precision: str = "float32"


def planned(
    rows: int,
    *,
    steps: int = 1000,
    keep: Keep | None = None,
    chunk_steps: int | None = None,
    keep_chunks: int = 0,
    precision: str = "float32",
) -> Plan:
    """A plan of one choice."""
    return Plan((Choice(steps, rows, keep, chunk_steps, keep_chunks),), precision)


class Labels(nn.Module):
    """Logits for each step, or for each sequence where it pools."""

    def __init__(
        self, cell: str = "LSTM", *, layers: int = 1, both_ways: bool = False, pool: str = "", batch_first: bool = False
    ) -> None:
        super().__init__()
        make = getattr(nn, cell)
        self.layers = make(INPUTS, HIDDEN, layers, bidirectional=both_ways, batch_first=batch_first)
        size = HIDDEN * (2 if both_ways else 1)
        self.pool = Pool(pool, batch_first=batch_first) if pool else nn.Identity()  # type: ignore[arg-type] # drawn
        self.head = nn.Linear(size, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.layers(x)[0]))
        return logits


@dataclass(frozen=True)
class Data:
    """A padded batch; what is padding holds numbers too."""

    lengths: tuple[int, ...]
    batch_first: bool = False
    per_step: bool = True
    weights: str = "none"
    ignores: bool = False
    seed: int = 0
    padding: int = 1
    tensors: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Draw them."""
        generator = torch.Generator().manual_seed(self.seed)
        sequences, steps = len(self.lengths), max(self.lengths) + self.padding
        shape = (sequences, steps) if self.batch_first else (steps, sequences)
        of_targets = shape if self.per_step else (sequences,)
        targets = torch.randint(CLASSES, of_targets, generator=generator)
        if self.ignores:
            targets[torch.rand(of_targets, generator=generator) < 0.3] = IGNORED
            targets.view(-1)[0] = 0  # something counts: the first step of the first sequence is valid
        of_weight = of_targets if self.weights == "step" else (sequences,)
        drawn = {
            "inputs": torch.randn(*shape, INPUTS, generator=generator, dtype=torch.float64),
            "targets": targets,
            "lengths": torch.tensor(self.lengths),
            "weight": torch.rand(of_weight, generator=generator, dtype=torch.float64) + 0.1,
        }
        object.__setattr__(self, "tensors", drawn if self.weights != "none" else drawn | {"weight": None})

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As a step takes it."""
        inputs, targets, lengths, weight = self.tensors.values()
        return inputs, targets, lengths, weight

    def sequence(self, number: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """One sequence of the batch by itself, without padding: (1, T, F) or (T, 1, F), and what belongs to it."""
        inputs, targets, _, weight = self.tensors.values()
        axis, length = (0 if self.batch_first else 1), self.lengths[number]
        alone = inputs.narrow(axis, number, 1).narrow(1 - axis, 0, length)
        if self.per_step:
            own = targets.narrow(axis, number, 1).narrow(1 - axis, 0, length)
        else:
            own = targets[number : number + 1]
        if weight is None:
            return alone, own, None
        if weight.dim() == 1:
            return alone, own, weight[number : number + 1]
        return alone, own, weight.narrow(axis, number, 1).narrow(1 - axis, 0, length)


def plain_run(
    model: nn.Module, data: Data, *, numbers: Sequence[int] | None = None, class_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Stock layers on one sequence after another: the sum of weighted losses, and of what counts."""
    total, counted = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for number in range(len(data.lengths)) if numbers is None else numbers:
        if data.per_step and data.lengths[number] == 0:
            continue
        inputs, targets, weight = data.sequence(number)
        logits = model(inputs)
        values = F.cross_entropy(
            logits.reshape(-1, CLASSES),
            targets.reshape(-1),
            weight=class_weight,
            ignore_index=IGNORED,
            reduction="none",
        )
        values = values if weight is None else values * weight.reshape(-1).expand_as(values)
        counts = torch.ones(CLASSES, dtype=torch.float64) if class_weight is None else class_weight
        total = total + values.sum()
        counted = counted + counts[targets[targets != IGNORED]].sum()
    return total, counted


def undivided(model: nn.Module, data: Data, *, class_weight: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of the whole batch, by plain torch."""
    twin = copy.deepcopy(model)
    twin.zero_grad()
    lowtide.stock(twin)
    total, counted = plain_run(twin, data, class_weight=class_weight)
    loss = total / counted
    loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
    return loss.detach(), gradients(twin)
