"""Losses per time step or per sequence, as steps take them: `loss_fn(outputs, targets)` gives (B, T), or (B,).

Classes and features lie last: outputs are (B, T, C) or (B, T, F), or without T for one output a sequence. Features are
averaged. What is averaged over steps and sequences, and how it is weighted, is the step's business: it alone knows the
whole effective batch. Two dimensions are read as (B, T) with one feature; where the model gives one output of several
features a sequence, (B, F), the step averages what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 2
"""Dimensions of a loss per step."""


def cross_entropy(
    outputs: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits, classes last, and class numbers (or class probabilities, classes last).

    Args:
        outputs: (..., C) logits.
        targets: (...) class numbers, or (..., C) probabilities.
        weight: (C,) weights of the classes.
        ignore_index: The class number that counts as no step at all.
        label_smoothing: Part of the probability that is spread over all classes.
    """
    shape = outputs.shape[:-1]
    flat = targets.reshape(-1, *targets.shape[len(shape) :])
    losses = F.cross_entropy(
        outputs.reshape(-1, outputs.shape[-1]),
        flat,
        weight=weight,
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return losses.view(shape)


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error."""
    return _over_features(F.mse_loss(outputs, targets, reduction="none"))


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """Absolute error."""
    return _over_features(F.l1_loss(outputs, targets, reduction="none"))


def huber(outputs: Tensor, targets: Tensor, *, delta: float = 1.0) -> Tensor:
    """Squared error up to `delta`, absolute beyond."""
    return _over_features(F.huber_loss(outputs, targets, reduction="none", delta=delta))


def bce(outputs: Tensor, targets: Tensor, *, pos_weight: Tensor | None = None) -> Tensor:
    """Binary cross entropy of logits (not of probabilities: these lose precision near 0 and 1)."""
    losses = F.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none", pos_weight=pos_weight
    )
    return _over_features(losses)


def quantile(outputs: Tensor, targets: Tensor, *, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> Tensor:
    """Pinball loss of several quantiles, averaged.

    Args:
        outputs: (..., Q), a forecast of each quantile, last.
        targets: (...) what came.
        quantiles: The Q levels, between 0 and 1.
    """
    levels = torch.tensor(quantiles, dtype=outputs.dtype, device=outputs.device)
    errors = targets.unsqueeze(-1) - outputs
    return torch.maximum(levels * errors, (levels - 1) * errors).mean(-1)


class LinearCrossEntropy(torch.nn.Module):
    """Cross entropy of a linear head over a large vocabulary, whose logits never exist as a whole.

    The model returns what goes into the head; the head's weights stay the model's own:

    ```python
    step = lowtide.StreamStep(model, lowtide.nn.losses.LinearCrossEntropy(model.head))
    ```

    `torch.nn.functional.linear_cross_entropy` takes rows in blocks and computes their logits again in the backward
    pass: one third more work in the head for a memory that does not grow with steps times classes.
    """

    def __init__(self, head: torch.nn.Linear, *, ignore_index: int = -100, block_rows: int | None = None) -> None:
        """Take the head.

        Args:
            head: The linear layer in front of the loss.
            ignore_index: The class number that counts as no step at all.
            block_rows: Rows whose logits exist at once; None leaves the choice to torch.
        """
        super().__init__()
        self.head = head
        self.ignore_index = ignore_index
        self.block_rows = block_rows

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """From (..., H) before the head and (...) class numbers to the loss of each."""
        losses = F.linear_cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]),
            self.head.weight,
            targets.reshape(-1),
            linear_bias=self.head.bias,
            reduction="none",
            ignore_index=self.ignore_index,
            options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=self.block_rows),
        )
        return losses.view(targets.shape)


def _over_features(losses: Tensor) -> Tensor:
    return losses.flatten(_STEPS).mean(-1) if losses.dim() > _STEPS else losses
