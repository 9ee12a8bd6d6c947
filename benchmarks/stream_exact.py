"""Runs inside a measuring child: how exact streamed gradients are, and what they can learn."""

from __future__ import annotations

import copy
import statistics

import torch
from torch import Tensor, nn

import lowtide
from benchmarks.adding import learn

STEPS, BATCH, INPUTS, HIDDEN, CLASSES = 3000, 4, 16, 32, 5
CHUNK_LENGTHS = (1, 2, 3, 7, 16, 50, 128, 333, 512, 1000, 1499, 1500, 2048, 2999, 3000)
LAST_ROUNDS = 50


class Tagger(nn.Module):
    """A stack with dropout, and a head on each step."""

    def __init__(self, cell: str, dropout: float) -> None:
        """Make lean layers."""
        super().__init__()
        self.layers = lowtide.lean(getattr(nn, cell)(INPUTS, HIDDEN, 2, dropout=dropout))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.drop(self.layers(x)[0]))
        return logits


def exact(cell: str, dropout: float) -> dict[str, object]:
    """Errors of all gradients, relative to the largest entry of each, for many chunk lengths.

    The reference is the whole sequence in float64; with dropout, which drops otherwise in other chunks, the same
    chunks with all their graphs kept. Float32 is compared with the float64 stream that drops the same.
    """
    torch.manual_seed(0)
    model = Tagger(cell, dropout)
    precise = copy.deepcopy(model).double()
    inputs, targets = torch.randn(STEPS, BATCH, INPUTS), torch.randint(CLASSES, (STEPS, BATCH))
    lengths = torch.randint(STEPS // 3, STEPS + 1, (BATCH,))
    lengths[0] = STEPS

    def run(module: nn.Module, chunk_steps: int, *, keep_chunks: int = 0) -> list[Tensor]:
        torch.manual_seed(1)
        module.zero_grad()
        loss = lowtide.nn.losses.cross_entropy
        step = lowtide.StreamStep(module, loss, chunk_steps=chunk_steps, keep_chunks=keep_chunks)
        step(inputs.to(next(module.parameters()).dtype), targets, lengths=lengths)
        return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]

    def reference(module: nn.Module, chunk_steps: int) -> list[Tensor]:
        if dropout == 0:
            return [gradient.clone() for gradient in run(module, STEPS)]
        return [gradient.clone() for gradient in run(module, chunk_steps, keep_chunks=STEPS)]

    float32, float64 = {}, {}
    for chunk_steps in CHUNK_LENGTHS:
        wanted = reference(precise, chunk_steps)
        float64[str(chunk_steps)] = error(run(precise, chunk_steps), wanted)
        float32[str(chunk_steps)] = error(run(model, chunk_steps), wanted)
    whole = error(run(model, STEPS), reference(precise, STEPS))
    return {"float32": float32, "float64": float64, "whole": whole}


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest difference of any gradient, relative to its largest entry."""
    pairs = zip(found, wanted, strict=True)
    return max(float((one.double() - other.double()).abs().max() / other.abs().max()) for one, other in pairs)


def adding(steps: int, window_steps: int | None, rounds: int) -> float:
    """The mean error of the last rounds of learning the adding problem."""
    errors = list(learn(steps=steps, window_steps=window_steps, rounds=rounds))
    return statistics.mean(errors[-LAST_ROUNDS:])
