"""A model tried on a sample without leaving a trace: buffers, generators and gradients are as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from lowtide.ops.autocast import AutocastState, under
from lowtide.step._agreement import Agreement
from lowtide.step._determined import Determined
from lowtide.step._model import Manner, StreamedModel
from lowtide.step._randomness import Sources, Watch
from lowtide.step._sample import Sample
from lowtide.step._trial import Trial
from lowtide.step._undisturbed import undisturbed


@dataclass(frozen=True)
class Attempt:
    """What runs the model, and what its first run has shown."""

    trial: Trial
    agreement: Agreement
    autocast: AutocastState | None
    """As it is set where the model is trained; while it is tried it is off outside of its forward."""
    sources: Sources
    """What the model draws from."""


@contextmanager
def attempt(
    model: StreamedModel,
    sample: Sample,
    device: torch.device,
    *,
    parameters_of: Sequence[nn.Module],
    carries: bool = True,
) -> Iterator[Attempt]:
    """Run the model once, and let the block run it again.

    Args:
        model: What is tried.
        sample: On what.
        device: Where it runs.
        parameters_of: The modules that are to be as before afterwards.
        carries: Whether states are carried, as in a stream; else sequences are whole.

    Raises:
        LowtideError: It does not run.
    """
    autocast = AutocastState.current(sample.device_type)
    watch, determined = Watch([device]), Determined()
    model.manner = Manner(model.signature.state)
    trial = Trial(model, sample, autocast, lambda: watch.put_back(determined.own_generators), carries=carries)
    with undisturbed(parameters_of), determined, under(_off(autocast)):
        try:
            trial.first_run()
            agreement = Agreement(autocast=autocast is not None and autocast.enabled)
            yield Attempt(trial, agreement, autocast, watch.sources(determined.own_generators))
        finally:
            watch.put_back(determined.own_generators)


def _off(autocast: AutocastState | None) -> AutocastState | None:
    """Autocast switched off, where there is such a thing: comparing is done in what the model computed."""
    return None if autocast is None else replace(autocast, enabled=False)
