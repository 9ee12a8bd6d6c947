"""One micro-batch of whole sequences: its forward, and what its loss adds to the gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lowtide.nn._context import BatchContext, running
from lowtide.ops.spec import Keep
from lowtide.step._batch import StepBatch
from lowtide.step._loss import StepLoss
from lowtide.step._model import StreamedModel, WholeCarry
from lowtide.step._objective import Objective
from lowtide.step._precision import Precision


@dataclass(frozen=True)
class WholeRun:
    """How micro-batches run, whatever is in them. It keeps nothing of them."""

    model: StreamedModel
    loss: StepLoss
    keep: Keep | None
    precision: Precision
    scaled: Callable[[Tensor], Tensor]
    """A loss as it is differentiated: a GradScaler's work."""
    has_time: bool | None
    """Whether the model's outputs have an axis of time; None: not known."""

    def values(self, part: StepBatch, *, check: bool = False) -> Any:  # noqa: ANN401 - whatever the loss gives
        """What the loss function makes of a micro-batch, with the graph.

        Args:
            part: The micro-batch.
            check: Whether to refuse inputs that do not fit the forward's signature.
        """
        with self.precision.on(part.device):
            result = self.model.run(
                part.inputs_of(part.span),
                WholeCarry(),
                steps=part.steps,
                batch=part.sequences,
                lengths=part.lengths,
                keep=self.keep,
                static=part.static_values(),
                check=check,
            )
            along_time = part.targets_have_steps and self.has_time is not False
            return self.loss.raw(result.outputs, part.targets_of(part.span) if along_time else part.all_targets())

    def differentiate(self, part: StepBatch, values: Any, *, per_step: bool, divisor: float) -> Tensor:  # noqa: ANN401 - whatever the loss gave
        """Add a micro-batch's gradients to those there are, and return its share of the loss.

        Args:
            part: The micro-batch.
            values: What the loss function made of it.
            per_step: Whether they are one a step, rather than one a sequence.
            divisor: What the sum over the effective batch is divided by.
        """
        share = Objective(self.loss, part, per_step, divisor).share_of(values, part.span)
        if share.requires_grad:
            # What torch.utils.checkpoint computes again there must know what the forward knew.
            context = BatchContext(
                lengths=part.lengths, steps=part.steps, keep=self.keep, passes_state=self.model.passes_state
            )
            with running(context), torch.autocast(part.device.type, enabled=False):
                torch.autograd.backward([self.scaled(share)])
        return share.detach().double()
