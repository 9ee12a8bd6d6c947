"""Whether a loss fits a model: it is tried on the sample, so that what it cannot do is said before the first pass."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lowtide.step import _refusals
from lowtide.step._agreement import Agreement, Pair
from lowtide.step._batch import StepBatch
from lowtide.step._loss import StepLoss
from lowtide.step._reading import check_fit, targets_have_steps
from lowtide.step._sample import CUTS, Sample, targets_of
from lowtide.step._sequence import Data, map_leaves
from lowtide.step._trial import Run

FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)
"""What a function raises that outputs and targets do not fit."""


@dataclass(frozen=True)
class TriedLoss:
    """What trying a loss has shown."""

    per_step: bool
    """Whether it is one of each step, rather than one of each sequence."""
    values: Tensor
    """On the sample."""


def try_loss(
    loss: StepLoss,
    batch: StepBatch,
    sample: Sample,
    whole: Run,
    chunks: Sequence[Run],
    pairs: Sequence[Pair],
    agreement: Agreement,
) -> TriedLoss:
    """Compute the loss of the sample.

    Args:
        loss: The loss.
        batch: Where the targets come from.
        sample: What the model was run on.
        whole: What it made of it at once.
        chunks: What it made of it chunk by chunk.
        pairs: The outputs of both, side by side.
        agreement: When tensors are equal.

    Raises:
        LowtideError: The loss fails, gives values of another shape, mixes steps, or uses outputs of both kinds.
    """
    kinds = {pair.time_axis is not None for pair in pairs}
    per_step = kinds.pop() if len(kinds) == 1 else targets_have_steps(batch)
    check_fit(batch, per_step=per_step)
    targets = targets_of(sample, batch, per_step=per_step)
    shape = sample.shape if per_step else (sample.lanes,)
    values = _values(loss, whole.outputs, targets, shape)
    if kinds:  # both
        _check_one_kind(loss, whole.outputs, targets, values, pairs, per_step=per_step)
    if per_step:
        _check_chunks(loss, sample, targets, values, chunks, agreement)
    return TriedLoss(per_step, values)


def leaves_of(root: Tensor) -> list[Tensor]:
    """The tensors that a gradient of `root` would be added to."""
    found: dict[Tensor, None] = {}
    seen, waiting = set(), [root.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[leaf] = None
        waiting += [following for following, _ in node.next_functions]
    return list(found)


def _values(loss: StepLoss, outputs: Any, targets: Data, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401 - any
    try:
        return loss.values(outputs, targets, shape)
    except FAILURES as error:
        raise _refusals.loss_fails(error) from error


def _check_one_kind(
    loss: StepLoss,
    outputs: Any,  # noqa: ANN401 - whatever a model returns
    targets: Data,
    values: Tensor,
    pairs: Sequence[Pair],
    *,
    per_step: bool,
) -> None:
    """Refuse a loss that changes when outputs of the other kind become no numbers."""
    others = {id(pair.ours) for pair in pairs if (pair.time_axis is not None) != per_step}
    spoilt = map_leaves(lambda leaf: torch.full_like(leaf, torch.nan) if id(leaf) in others else leaf, outputs)
    with torch.no_grad():
        again = _values(loss, spoilt, targets, tuple(values.shape))
    if not ((again == values) | values.isnan()).all():
        raise _refusals.both_kinds()


def _check_chunks(
    loss: StepLoss, sample: Sample, targets: Data, values: Tensor, chunks: Sequence[Run], agreement: Agreement
) -> None:
    """Refuse a loss of steps that is another in chunks."""
    parts = []
    for (start, stop), run in zip(itertools.pairwise(CUTS), chunks, strict=True):
        shape = (sample.lanes, stop - start) if sample.batch_first else (stop - start, sample.lanes)
        with torch.no_grad():
            parts.append(_values(loss, run.outputs, sample.cut(targets, start, stop), shape))
    together = torch.cat(parts, sample.time_axis)
    ours, theirs = (sample.valid_part(one, sample.time_axis) for one in (values, together))
    if not agreement.tensors(ours, theirs):
        raise _refusals.loss_mixes()
