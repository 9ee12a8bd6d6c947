"""Whether a model keeps padding out of what it makes of a sequence: two runs that differ in their padding alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lowtide.step import _refusals
from lowtide.step._agreement import Agreement
from lowtide.step._differences import first_difference, first_gradient_difference
from lowtide.step._sample import Sample
from lowtide.step._trial import PADDING, Run, Trial

_OUTPUTS = "gives a sequence other outputs when padding is added behind it"
_GRADIENTS = "has other gradients when padding is added behind a sequence"
_STATES = "leaves another state when padding is added behind a sequence"


def check_padding(trial: Trial, bare: Run, agreement: Agreement, *, stateful: bool) -> None:
    """Refuse a model whose results on a sequence change when padding is added behind it.

    Args:
        trial: Runs the model.
        bare: Its run without more padding.
        agreement: When tensors are equal.
        stateful: Whether states are carried on from where each sequence ended, and must not have seen padding either.

    Raises:
        LowtideError: It names the module that takes padding for data.
    """
    padded, module = trial.padded(), trial.model.module

    def agrees(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
        pairs = [_valid_parts(one, other, trial.sample) for one, other in zip(ours, theirs, strict=False)]
        return all(pair is not None and agreement.tensors(*pair) for pair in pairs)

    if not agrees(bare.tensors, padded.tensors):
        path = first_difference(
            bare.trace,
            lambda key, side: key not in padded.trace or agrees(bare.trace[key][side], padded.trace[key][side]),
        )
        raise _refusals.takes_padding(trial.model, path, _OUTPUTS)
    pairs = [_valid_parts(one, other, trial.sample) for one, other in zip(bare.tensors, padded.tensors, strict=True)]
    valid = [pair for pair in pairs if pair is not None]
    contexts = trial.context_of(padding=0), trial.context_of(padding=PADDING)
    named = first_gradient_difference(
        module, [one for one, _ in valid], [other for _, other in valid], agreement, contexts=contexts
    )
    if named is not None:
        raise _refusals.takes_padding(trial.model, named, _GRADIENTS)
    if stateful:
        _check_states(trial, bare, padded, agreement)


def _check_states(trial: Trial, bare: Run, padded: Run, agreement: Agreement) -> None:
    paths = {module: path for path, module in trial.model.module.named_modules()}
    for slot, state in bare.leaving.items():
        floating = [(one, other) for one, other in zip(state, padded.leaving.get(slot, ()), strict=False)]
        if slot in trial.model.manner.within_steps or all(agreement.tensors(*pair) for pair in floating):
            continue
        path = paths.get(slot.module, "")
        raise _refusals.takes_padding(trial.model, path, _STATES)


def _valid_parts(bare: Tensor, padded: Tensor, sample: Sample) -> tuple[Tensor, Tensor] | None:
    """The same steps of the same sequences in both, where steps are there at all; None where shapes do not fit."""
    if bare.shape == padded.shape:
        return bare, padded
    if bare.dim() != padded.dim():
        return None
    axes = [axis for axis, (one, other) in enumerate(zip(bare.shape, padded.shape, strict=True)) if one != other]
    if len(axes) != 1 or (bare.shape[axes[0]], padded.shape[axes[0]]) != (sample.steps, sample.steps + PADDING):
        return None
    (time,) = axes
    return sample.valid_part(bare, time), sample.valid_part(padded.narrow(time, 0, sample.steps), time)
