"""Whether a model may be run in chunks, and with padding: it is tried on a sample of the data, both ways.

A model that mixes time in a way that chunks cannot see (a bidirectional layer, attention, BatchNorm over time, a
symmetric convolution) would train wrongly without a word, and so would one that takes padding for data. So before it is
trained, SAMPLE_STEPS rows of the data run through it at once and in chunks, and where lengths are given with more
padding behind; outputs, losses and gradients are compared. Where they differ, the first module whose outputs differ is
named. All modules stay in training or evaluation as they are: what is random gives the same in every run meanwhile
(`_determined.py`). Buffers and generators are as before afterwards, and no gradient is left behind.

What is seen reaches SAMPLE_STEPS - 1 steps to either side, and is larger than rounding (`_agreement.py`). A model that
looks further, or does so only now and then, is not found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lowtide.nn._layer import LeanLayer
from lowtide.ops.autocast import under
from lowtide.step import _refusals
from lowtide.step._agreement import Agreement, Pair, side_by_side
from lowtide.step._attempt import attempt
from lowtide.step._batch import StepBatch
from lowtide.step._differences import first_difference, first_gradient_difference
from lowtide.step._loss import StepLoss
from lowtide.step._loss_check import leaves_of, try_loss
from lowtide.step._model import StreamedModel
from lowtide.step._padding_check import check_padding
from lowtide.step._randomness import Sources
from lowtide.step._sample import Sample
from lowtide.step._trial import Run, Trial
from lowtide.step._verdicts import Shown


@dataclass(frozen=True, kw_only=True)
class Verdict(Shown):
    """What trying a model in chunks has shown."""

    per_step: bool
    """Whether the loss is of one output a step, rather than one a sequence."""
    loss_type: torch.dtype
    """Of the loss that is returned."""
    sources: Sources
    """What the model draws from."""
    outside: tuple[Tensor, ...]
    """What the loss differentiates besides the parameters of the model and of itself."""


def check_streamable(
    model: StreamedModel,
    loss: StepLoss,
    batch: StepBatch,
    sample: Sample,
    *,
    parameters_of: Sequence[nn.Module],
    stateful: bool,
) -> Verdict:
    """Refuse a model that chunks or padding would mislead, and a loss that does not fit it.

    Args:
        model: What is to be trained.
        loss: By what.
        batch: On what.
        sample: A few rows of that.
        parameters_of: The modules whose parameters are known to be trained.
        stateful: Whether states are carried on from where each sequence ended.

    Raises:
        LowtideError: It names the module that mixes time, or that takes padding for data, or what else is wrong.
    """
    with attempt(model, sample, batch.device, parameters_of=parameters_of) as tries:
        trial, agreement, sources = tries.trial, tries.agreement, tries.sources
        _refuse_forgetful_layers(model)
        whole = trial.whole()
        chunks = trial.in_chunks(whole)
        _refuse_wrong_layout(model, whole, batch)
        pairs = _compare_outputs(trial, whole, chunks, sources, agreement)
        with under(tries.autocast):
            tried = try_loss(loss, batch, sample, whole, chunks, pairs, agreement)
        _compare_gradients(trial, pairs, sources, agreement)
        if sample.lengths is not None:
            check_padding(trial, whole, agreement, stateful=stateful)
        if model.passes_state:
            trial.look_at_own_state()
    known = {parameter for module in parameters_of for parameter in module.parameters()}
    return Verdict(
        manner=model.manner,
        per_step=tried.per_step,
        loss_type=torch.promote_types(tried.values.dtype, torch.float32),
        sources=sources,
        outside=tuple(leaf for leaf in leaves_of(tried.values.sum()) if leaf not in known),
        varied=sample.varied,
    )


def _refuse_forgetful_layers(model: StreamedModel) -> None:
    """Refuse stock layers, which begin each chunk anew: with forgetful weights no short sample shows the difference."""
    if model.passes_state:
        return
    for path, module in model.module.named_modules():
        if isinstance(module, nn.RNNBase) and not isinstance(module, LeanLayer):
            raise _refusals.forgets_its_state(path, module)


def _compare_outputs(
    trial: Trial, whole: Run, chunks: Sequence[Run], sources: Sources, agreement: Agreement
) -> list[Pair]:
    """The outputs of both runs side by side; raise where chunks make a difference to what is valid."""

    def agree(ours: Sequence[Tensor], theirs: Sequence[Sequence[Tensor]]) -> bool:
        pairs = side_by_side(ours, theirs)
        return pairs is not None and all(agreement.tensors(*_valid(pair, trial)) for pair in pairs)

    pairs = side_by_side(whole.tensors, [run.tensors for run in chunks])
    if pairs is not None and agree(whole.tensors, [run.tensors for run in chunks]):
        return pairs

    def agrees(key: tuple[str, int], side: int) -> bool:
        parts = [run.trace[key][side] for run in chunks if key in run.trace]
        # A call that some chunks do without: its caller answers for it.
        return len(parts) < len(chunks) or agree(whole.trace[key][side], parts)

    path = first_difference(whole.trace, agrees)
    raise _refusals.mixes_time(trial.model, path, "gives other outputs in chunks than over the whole sequence", sources)


def _compare_gradients(trial: Trial, pairs: Sequence[Pair], sources: Sources, agreement: Agreement) -> None:
    ours, theirs = zip(*(_valid(pair, trial) for pair in pairs), strict=True)
    named = first_gradient_difference(trial.model.module, ours, theirs, agreement)
    if named is not None:
        what = "has other gradients in chunks than over the whole sequence"
        raise _refusals.mixes_time(trial.model, named, what, sources)


def _valid(pair: Pair, trial: Trial) -> tuple[Tensor, Tensor]:
    sample = trial.sample
    return sample.valid_part(pair.ours, pair.time_axis), sample.valid_part(pair.theirs, pair.time_axis)


def _refuse_wrong_layout(model: StreamedModel, whole: Run, batch: StepBatch) -> None:
    """Refuse a model in which nothing runs along time: exact, but it would need the memory of the whole sequence."""
    if whole.leaving and model.manner.within_steps == whole.leaving.keys():
        raise _refusals.runs_across(batch_first=batch.batch_first)
