"""Whether a batch may be cut into micro-batches: two of its sequences run together, and each of them alone.

A model that mixes sequences would be trained on other gradients than those of the undivided batch, and so would one
whose data are cut along time because they were read in the wrong layout. Outputs alone are compared, without gradients,
so that it takes less memory than the smallest micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.step import _refusals
from lowtide.step._agreement import Agreement
from lowtide.step._attempt import attempt
from lowtide.step._batch import Span, StepBatch
from lowtide.step._differences import first_difference
from lowtide.step._model import StreamedModel
from lowtide.step._sample import SAMPLE_STEPS, Sample
from lowtide.step._trial import Run

_LANES = 2


def check_rows(model: StreamedModel, batch: StepBatch, *, parameters_of: Sequence[nn.Module]) -> None:
    """Refuse a model that gives a sequence other outputs when another runs beside it.

    Args:
        model: What is to be trained.
        batch: On what; of at least two sequences.
        parameters_of: The modules whose parameters are known to be trained.

    Raises:
        LowtideError: It names the module that mixes sequences.
    """
    two = replace(batch, lengths=None).rows(slice(_LANES))
    steps = min(two.steps, SAMPLE_STEPS)
    try:
        together, agreement = _run(model, two, steps, parameters_of)
    except LowtideError:
        steps = two.steps  # of a fixed size: what is read as time is none
        together, agreement = _run(model, two, steps, parameters_of)
    for lane in range(_LANES):
        alone, _ = _run(model, two.rows(slice(lane, lane + 1)), steps, parameters_of)
        path = _first_mixing(together, alone, lane, agreement)
        if path is not None:
            raise _refusals.mixes_sequences(model, path, batch_first=batch.batch_first)


def _first_mixing(together: Run, alone: Run, lane: int, agreement: Agreement) -> str | None:
    """The path of the first module that gives the sequence other outputs together; None where the model does not."""
    if len(together.tensors) == len(alone.tensors) and all(
        _agree(both, one, lane, agreement) for both, one in zip(together.tensors, alone.tensors, strict=True)
    ):
        return None

    def agrees(key: tuple[str, int], side: int) -> bool:
        pairs = zip(together.trace[key][side], alone.trace[key][side] if key in alone.trace else (), strict=False)
        return all(_agree(both, one, lane, agreement) for both, one in pairs if both.dim() == one.dim())

    return first_difference(together.trace, agrees)


def _run(
    model: StreamedModel, batch: StepBatch, steps: int, parameters_of: Sequence[nn.Module]
) -> tuple[Run, Agreement]:
    with torch.no_grad():
        sample = Sample(
            inputs=batch.inputs_of(Span(0, steps)),
            lanes=batch.sequences,
            lengths=None,
            batch_first=batch.batch_first,
            times=tuple(range(steps)),
            sequences=torch.arange(batch.sequences).expand(steps, -1),
            varied=frozenset(),
            steps=steps,
            fixed=batch.fixed,
            static=batch.static_values(),
        )
        with attempt(model, sample, batch.device, parameters_of=parameters_of, carries=False) as tries:
            return tries.trial.whole(), tries.agreement


def _agree(both: Tensor, one: Tensor, lane: int, agreement: Agreement) -> bool:
    """Whether a tensor of two sequences holds that of one of them, wherever the sequences lie in it."""
    if both.shape == one.shape:
        return agreement.tensors(both, one)
    if both.dim() != one.dim():
        return False
    axes = [axis for axis, (many, few) in enumerate(zip(both.shape, one.shape, strict=True)) if many != few]
    if len(axes) != 1 or both.shape[axes[0]] != _LANES * one.shape[axes[0]]:
        return False
    (axis,), size = axes, one.shape[axes[0]]
    # Where steps and sequences share an axis, they lie one sequence after another, or one step after another.
    apart = both.narrow(axis, lane * size, size), both.movedim(axis, 0)[lane::_LANES].movedim(0, axis)
    return any(agreement.tensors(part, one) for part in apart)
