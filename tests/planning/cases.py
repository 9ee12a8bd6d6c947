"""Models, data and plans that the tests of planning share."""
# ruff: noqa: D102, D107 - a module's forward needs no docstring

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lowtide
from lowtide.planning import BucketPlan, Component, Offer, Plan, SizeTried
from lowtide.planning.budget import Budget
from lowtide.planning.pattern import Pattern, read_pattern
from lowtide.step import Choice

INPUTS, CLASSES = 8, 4
MIB = 1 << 20


class Tagger(nn.Module):
    """Values for each step."""

    def __init__(
        self, cell: str = "LSTM", hidden: int = 16, *, layers: int = 1, batch_first: bool = True, lean: bool = True
    ) -> None:
        super().__init__()
        self.rnn = getattr(nn, cell)(INPUTS, hidden, layers, batch_first=batch_first)
        self.head = nn.Linear(hidden, CLASSES)
        if lean:
            lowtide.lean(self)

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.head(self.rnn(x)[0])
        return values


class Samples(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Sequences of given lengths; reading one draws from every global generator."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        random.random()  # noqa: S311 - moved, not used
        np.random.random()  # noqa: NPY002 - the global generator
        steps = self.lengths[number]
        return torch.randn(steps, INPUTS), torch.randn(steps, CLASSES)


def sample(rows: int = 4, steps: int = 10, *, lengths: bool = True) -> tuple[Tensor, ...]:
    """A padded batch for a Tagger."""
    batch = (torch.randn(rows, steps, INPUTS), torch.randn(rows, steps, CLASSES))
    told = torch.randint(1, steps + 1, (rows,))
    told[0] = steps
    return (*batch, told) if lengths else batch


def pattern(*, rows: int = 4, steps: int = 10, lengths: bool = True) -> Pattern:
    """What such a batch looks like."""
    return read_pattern(sample(rows, steps, lengths=lengths), batch_first=True)


def padded(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """A collate function as users write it."""
    pad = nn.utils.rnn.pad_sequence
    inputs, targets = zip(*batch, strict=True)
    lengths = torch.tensor([len(one) for one in inputs])
    return pad(list(inputs), batch_first=True), pad(list(targets), batch_first=True), lengths


def budget(left: int, held: int = 100 * MIB) -> Budget:
    """A budget that leaves so much."""
    return Budget(held + left, "as asked", held)


def made_plan(**changed: Any) -> Plan:  # noqa: ANN401 - fields of a plan
    """A plan with something in every field."""
    values: dict[str, Any] = {
        "budget": 900 * MIB,
        "budget_source": "as <asked>",
        "peak_bytes": 700 * MIB,
        "base_bytes": 200 * MIB,
        "before_proof": 690 * MIB,
        "device": "cpu",
        "precision": "float32",
        "batch_size": 64,
        "buckets": (
            BucketPlan(Choice(100, 64, "gates"), 64, 12.0, 300 * MIB, 1.5),
            BucketPlan(Choice(5000, 8, None, 512, 3), 64, 2.5, 490 * MIB, 30.0),
        ),
        "components": (Component("held before training", 200 * MIB), Component("gradients", 500 * MIB)),
        "prefetch_bytes": 12345,
        "foreach": False,
        "seconds_per_epoch": 31.5,
        "sure": "Sizes: told. Proved.",
        "faster_with": 1000 * MIB,
        "sizes_tried": (
            SizeTried(8, fits=True, steps_per_second=1234.0),
            SizeTried(16, fits=False, steps_per_second=0),
        ),
        "offers": (Offer("half the units", 100 * MIB, "a smaller model"),),
        "circumstances": {"torch": "2.13.0", "threads": 2},
        "fingerprint": "0123abcd",
        "planning_seconds": 7.0,
    }
    return Plan(**(values | changed))
