"""What a chunk adds to the loss of a whole batch: its share of the mean over valid steps, or over sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.step._batch import Span, StreamBatch
from lowtide.step._loss import StepLoss


@dataclass(frozen=True)
class Objective:
    """The loss of one batch."""

    loss: StepLoss
    batch: StreamBatch
    per_step: bool
    """Whether the model gives one output a step, rather than one a sequence."""
    divisor: float
    """What the weighted sum of all values is divided by."""

    def share(self, outputs: Any, span: Span) -> Tensor:  # noqa: ANN401 - whatever the model gives
        """What a span adds; where the model gives one output a sequence, that of the last span is all there is."""
        batch = self.batch
        if not self.per_step:
            values = self.loss.values(outputs, batch.all_targets(), (batch.sequences,))
            return (values if batch.weight is None else values * batch.weight).sum() / self.divisor
        values = self.loss.values(outputs, batch.targets_of(span), batch.shape_of(span))
        valid, weight = batch.valid_in(span), batch.weight_in(span)
        if valid is not None:
            values = torch.where(valid, values, 0)
        return (values if weight is None else values * weight).sum() / self.divisor


def make_objective(
    loss: StepLoss, batch: StreamBatch, spans: Sequence[Span], *, per_step: bool, group: dist.ProcessGroup | None
) -> Objective:
    """Find the divisor, over all ranks of a data-parallel model: each valid step then counts the same on all of them.

    Raises:
        LowtideError: Nothing counts, so there is no mean.
    """
    total = torch.tensor(1.0 if loss.sums else _count(loss, batch, spans, per_step=per_step), dtype=torch.float64)
    ranks = 1
    if group is not None:
        ranks = dist.get_world_size(group)
        together = total.to(batch.device)
        dist.all_reduce(together, group=group)
        total = torch.ones(()) if loss.sums else together
    if float(total) == 0:
        raise LowtideError(
            what="no step of the batch counts: all are padding, or all targets are ignored",
            why="the loss is a mean over what counts",
            fix="leave such a batch out",
        )
    # the ranks' gradients are averaged afterwards
    return Objective(loss, batch, per_step, float(total) / ranks)


def _count(loss: StepLoss, batch: StreamBatch, spans: Sequence[Span], *, per_step: bool) -> float:
    if not per_step:
        counts = loss.counts(batch.all_targets(), (batch.sequences,))
        return batch.sequences if counts is None else float(counts.sum())
    if not loss.counts_targets:
        return batch.valid_steps
    total = 0.0
    for span in spans:
        counts = loss.counts(batch.targets_of(span), batch.shape_of(span))
        valid = batch.valid_in(span)
        if counts is None:
            total += batch.shape_of(span)[0] * batch.shape_of(span)[1] if valid is None else int(valid.sum())
        else:
            total += float((counts if valid is None else torch.where(valid, counts, 0)).sum())
    return total
