"""Losses per time step or per sequence, as steps take them: `loss_fn(outputs, targets)` gives (B, T), or (B,).

Classes and features lie last: outputs are (B, T, C) or (B, T, F), or without T for one output a sequence. Features are
averaged. What is averaged over steps and sequences, and how it is weighted, is the step's business: it alone knows the
whole effective batch. Two dimensions are read as (B, T) with one feature; where the model gives one output of several
features a sequence, (B, F), the step averages what is left. Outputs and targets must be of one shape; a last axis of
size 1 that the outputs have beyond the targets is dropped. Nothing else is broadcast: (B, 1) against (B,) would compare
every output with every target.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lowtide.errors import LowtideError

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
    check_classes(outputs, targets)
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
    return _over_features(F.mse_loss(*fitted(outputs, targets), reduction="none"))


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """Absolute error."""
    return _over_features(F.l1_loss(*fitted(outputs, targets), reduction="none"))


def huber(outputs: Tensor, targets: Tensor, *, delta: float = 1.0) -> Tensor:
    """Squared error up to `delta`, absolute beyond."""
    return _over_features(F.huber_loss(*fitted(outputs, targets), reduction="none", delta=delta))


def bce(outputs: Tensor, targets: Tensor, *, pos_weight: Tensor | None = None) -> Tensor:
    """Binary cross entropy of logits (not of probabilities: these lose precision near 0 and 1)."""
    logits, labels = fitted(outputs, targets)
    losses = F.binary_cross_entropy_with_logits(
        logits, labels.to(logits.dtype), reduction="none", pos_weight=pos_weight
    )
    return _over_features(losses)


def quantile(outputs: Tensor, targets: Tensor, *, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> Tensor:
    """Pinball loss of several quantiles, averaged.

    Args:
        outputs: (..., Q), a forecast of each quantile, last.
        targets: (...) what came.
        quantiles: The Q levels, between 0 and 1.
    """
    if outputs.shape != (*targets.shape, len(quantiles)):
        raise _misfit(outputs, targets, f"{len(quantiles)} quantiles of each target lie last in the outputs")
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
        if outputs.shape[:-1] != targets.shape:
            raise _misfit(outputs, targets, "each row in front of the head has one class number")
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


def fitted(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets of one shape, ready for a loss element by element.

    Raises:
        LowtideError: The shapes differ by more than a last axis of size 1 of the outputs.
    """
    if outputs.shape == (*targets.shape, 1):
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise _misfit(outputs, targets, "each output is compared with the target in its own place")
    return outputs, targets


def check_classes(outputs: Tensor, targets: Tensor) -> None:
    """Refuse targets that are neither class numbers nor class probabilities for these outputs, classes last.

    Raises:
        LowtideError: The shapes do not fit.
    """
    if targets.shape not in {outputs.shape[:-1], outputs.shape}:
        raise _misfit(outputs, targets, "classes lie last in the outputs, and each row of them has one target")


def _misfit(outputs: Tensor, targets: Tensor, why: str) -> LowtideError:
    return LowtideError(
        what=f"outputs of shape {tuple(outputs.shape)} do not fit targets of shape {tuple(targets.shape)}",
        why=why,
        fix="bring both to one shape in the model or the data, for example with squeeze(-1) or unsqueeze(-1)",
    )
