"""Whether whole sequences may be padded beside others: the model and its loss are tried with more padding behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lowtide.ops.autocast import under
from lowtide.step import _refusals
from lowtide.step._attempt import Attempt, attempt
from lowtide.step._batch import StepBatch
from lowtide.step._loss import StepLoss
from lowtide.step._loss_check import FAILURES
from lowtide.step._model import StreamedModel
from lowtide.step._padding_check import check_padding
from lowtide.step._sample import SAMPLE_STEPS, Sample, targets_of
from lowtide.step._sequence import Data
from lowtide.step._trial import PADDING, Run
from lowtide.step._verdicts import Shown


@dataclass(frozen=True, kw_only=True)
class WholeVerdict(Shown):
    """What trying a model with padding has shown."""

    has_time: bool | None
    """Whether its outputs have an axis of time; None where some have."""


def whole_sample_steps(batch: StepBatch) -> int:
    """Steps of a sample: with the padding behind no more than the batch has, for models that know a longest one."""
    return max(1, min(SAMPLE_STEPS, batch.steps) - PADDING)


def check_whole(
    model: StreamedModel, loss: StepLoss, batch: StepBatch, sample: Sample, *, parameters_of: Sequence[nn.Module]
) -> WholeVerdict:
    """Refuse a model or a loss that takes padding for data.

    Args:
        model: What is to be trained.
        loss: By what.
        batch: On what.
        sample: A few rows of that.
        parameters_of: The modules whose parameters are known to be trained.

    Raises:
        LowtideError: It names the module.
    """
    with attempt(model, sample, batch.device, parameters_of=parameters_of, carries=False) as tries:
        bare, padded = tries.trial.whole(), tries.trial.padded()
        check_padding(tries.trial, bare, tries.agreement, stateful=False)
        has_time = _has_time(bare, padded)
        if has_time:
            _check_loss(loss, batch, tries, bare, padded)
    return WholeVerdict(manner=model.manner, varied=sample.varied, has_time=has_time)


def _has_time(bare: Run, padded: Run) -> bool | None:
    """What has time has grown by the padding."""
    kinds = {one.shape != other.shape for one, other in zip(bare.tensors, padded.tensors, strict=True)}
    return kinds.pop() if len(kinds) == 1 else None


def _check_loss(loss: StepLoss, batch: StepBatch, tries: Attempt, bare: Run, padded: Run) -> None:
    """Refuse a loss of whole sequences, made of all steps' outputs, that counts padding."""
    targets = longer = targets_of(tries.trial.sample, batch, per_step=batch.targets_have_steps)
    if batch.targets_have_steps:
        longer = tries.trial.padding_behind(targets)
    with under(tries.autocast), torch.no_grad():
        one, other = _raw(loss, bare, targets), _raw(loss, padded, longer)
    if isinstance(one, Tensor) and one.dim() == 1 and not tries.agreement.tensors(one, other):
        raise _refusals.loss_takes_padding()


def _raw(loss: StepLoss, run: Run, targets: Data) -> Data:
    try:
        return loss.raw(run.outputs, targets)
    except FAILURES as error:
        raise _refusals.loss_fails(error) from error
