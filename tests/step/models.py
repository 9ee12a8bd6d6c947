"""Models that the tests of streaming share, and what a plain run over the whole sequences makes of them."""
# ruff: noqa: D102, D107 - a module's forward needs no docstring

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn import CausalConv1d, Pool
from lowtide.nn._context import BatchContext, running

INPUTS, HIDDEN, CLASSES = 3, 5, 4
CELLS = ("LSTM", "GRU", "RNN")
Loss = Callable[[Tensor, Tensor], Tensor]


class Tagger(nn.Module):
    """Logits for each step: a stack between modules that act on each step alone."""

    def __init__(self, cell: str = "LSTM", *, layers: int = 2, dropout: float = 0.0, batch_first: bool = False) -> None:
        super().__init__()
        self.front = nn.Linear(INPUTS, HIDDEN)
        stock = getattr(nn, cell)(HIDDEN, HIDDEN, layers, dropout=dropout, batch_first=batch_first)
        self.layers = lowtide.lean(stock)
        self.norm = nn.LayerNorm(HIDDEN)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layers(torch.tanh(self.front(x)))
        logits: Tensor = self.head(self.drop(self.norm(outputs)))
        return logits


class Classifier(nn.Module):
    """Logits for each sequence, behind a convolution over time."""

    def __init__(self, how: str = "mean", *, batch_first: bool = False) -> None:
        super().__init__()
        self.front = CausalConv1d(INPUTS, HIDDEN, 4, dilation=2, batch_first=batch_first)
        self.layers = lowtide.nn.GRU(HIDDEN, HIDDEN, batch_first=batch_first)
        size = HIDDEN if how == "attention" else None
        self.pool = Pool(how, size, batch_first=batch_first)  # type: ignore[arg-type] # drawn names
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layers(self.front(x))
        logits: Tensor = self.head(self.pool(outputs))
        return logits


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter's gradient, zeros where there is none; and none left behind."""
    found = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in module.named_parameters()
    }
    module.zero_grad()
    return found


def per_step_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy, one value a step, by torch's own function."""
    return nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")


def whole_loss(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    lengths: Tensor | None = None,
    weight: Tensor | None = None,
    batch_first: bool = False,
) -> Tensor:
    """The loss of whole sequences in one forward: the mean over valid steps of cross entropy times weight."""
    steps = inputs.shape[1 if batch_first else 0]
    with running(BatchContext(lengths=lengths, steps=steps)):
        outputs = model(inputs)
    per_step = outputs.dim() == inputs.dim()
    values = (
        per_step_loss(outputs, targets) if per_step else nn.functional.cross_entropy(outputs, targets, reduction="none")
    )
    if weight is not None:
        values = values * (weight[:, None] if batch_first and per_step and weight.dim() == 1 else weight)
    if not per_step or lengths is None:
        return values.mean()
    valid = torch.arange(steps)[:, None] < lengths
    return values[valid.T if batch_first else valid].sum() / lengths.sum()


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference of any tensor, relative to its largest entry."""
    assert found.keys() == expected.keys()
    errors = []
    for name, wanted in expected.items():
        scale = wanted.abs().max().clamp(min=1e-30)
        errors.append(float((found[name].double() - wanted.double()).abs().max() / scale))
    return max(errors)
