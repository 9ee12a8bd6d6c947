"""What a part adds to the loss of a whole batch: its share of the mean over valid steps, or over sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.step._batch import Span, StepBatch
from lowtide.step._loss import StepLoss


@dataclass(frozen=True)
class Objective:
    """The loss of one batch."""

    loss: StepLoss
    batch: StepBatch
    per_step: bool
    """Whether the model gives one output a step, rather than one a sequence."""
    divisor: float
    """What the weighted sum of all values is divided by."""

    def share(self, outputs: Any, span: Span) -> Tensor:  # noqa: ANN401 - whatever the model gives
        """What a span adds; where the model gives one output a sequence, that of the last span is all there is."""
        targets = self.batch.targets_of(span) if self.per_step else self.batch.all_targets()
        return self.share_of(self.loss.raw(outputs, targets), span)

    def share_of(self, raw: Any, span: Span) -> Tensor:  # noqa: ANN401 - whatever the loss gives
        """What a span adds, from what the loss function gave."""
        batch = self.batch
        if not self.per_step:
            values = self.loss.shaped(raw, (batch.sequences,))
            return _total(values if batch.weight is None else values * batch.weight) / self.divisor
        values = self.loss.shaped(raw, batch.shape_of(span))
        valid, weight = batch.valid_in(span), batch.weight_in(span)
        if valid is not None:
            values = torch.where(valid, values, 0)
        return _total(values if weight is None else values * weight) / self.divisor


def make_objective(
    loss: StepLoss, batch: StepBatch, spans: Sequence[Span], *, per_step: bool, group: dist.ProcessGroup | None
) -> Objective:
    """The objective of a batch by itself.

    Raises:
        LowtideError: Nothing counts, so there is no mean.
    """
    return Objective(loss, batch, per_step, find_divisor(loss, [(batch, spans)], per_step=per_step, group=group))


def find_divisor(
    loss: StepLoss,
    parts: Iterable[tuple[StepBatch, Sequence[Span]]],
    *,
    per_step: bool,
    group: dist.ProcessGroup | None,
) -> float:
    """What counts in all parts, over all ranks of a data-parallel model: each step then counts the same everywhere.

    Raises:
        LowtideError: Nothing counts, so there is no mean.
    """
    total, device = torch.zeros((), dtype=torch.float64), None
    for batch, spans in parts:
        device = batch.device
        if not loss.sums:
            total = total + _count(loss, batch, spans, per_step=per_step)
    ranks = 1
    if group is not None:
        ranks = dist.get_world_size(group)
        total = total.to(device)
        dist.all_reduce(total, group=group)
    if loss.sums:
        return 1.0 / ranks
    if float(total) == 0:
        raise LowtideError(
            what="no step of the batch counts: all are padding, or all targets are ignored",
            why="the loss is a mean over what counts",
            fix="leave such a batch out",
        )
    # the ranks' gradients are averaged afterwards
    return float(total) / ranks


def _count(loss: StepLoss, batch: StepBatch, spans: Sequence[Span], *, per_step: bool) -> Tensor | int:
    """A tensor where it takes looking at targets: its value is asked for once, when all parts are counted."""
    if not loss.counts_targets:
        return batch.valid_steps if per_step else batch.sequences
    if not per_step:
        counts = loss.counts(batch.all_targets(), (batch.sequences,))
        return batch.sequences if counts is None else counts.sum()
    total: Tensor | int = 0
    for span in spans:
        counts = loss.counts(batch.targets_of(span), batch.shape_of(span))
        valid = batch.valid_in(span)
        if counts is None:
            total = total + (batch.shape_of(span)[0] * batch.shape_of(span)[1] if valid is None else valid.sum())
        else:
            total = total + (counts if valid is None else torch.where(valid, counts, 0)).sum()
    return total


def _total(values: Tensor) -> Tensor:
    """The sum, of halves in float32: they would lose what comes late."""
    return values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
