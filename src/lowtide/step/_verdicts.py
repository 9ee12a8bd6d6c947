"""What is known of a model, by the circumstances in which it was tried: tried again where these change.

A model in evaluation mode, or one that was tried on a batch without padding, says little about the same model in
training or with padding. And a batch that never changes in time hides what mixes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import nn

from lowtide.ops.autocast import AutocastState
from lowtide.step._batch import StepBatch
from lowtide.step._model import Manner, StreamedModel
from lowtide.step._sample import SAMPLE_STEPS, Sample, draw_sample
from lowtide.step._sequence import leaves


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What trying a model has shown."""

    manner: Manner
    """How it treats states."""
    varied: frozenset[int]
    """Parts of the inputs that were seen to change in time."""


V = TypeVar("V", bound=Shown)


def _usual_steps(_: StepBatch) -> int:
    return SAMPLE_STEPS


class Verdicts(Generic[V]):
    """Tries a model once in all the circumstances that it comes in."""

    def __init__(
        self,
        model: StreamedModel,
        modules: Sequence[nn.Module],
        check: Callable[[StepBatch, Sample], V],
        sample_steps: Callable[[StepBatch], int] = _usual_steps,
    ) -> None:
        """Nothing is known yet.

        Args:
            model: What is trained.
            modules: What of it and of its loss has parameters.
            check: Tries it on a sample of a batch.
            sample_steps: How many steps the sample of a batch has.
        """
        self._model = model
        self._modules = modules
        self._check = check
        self._sample_steps = sample_steps
        self._known: dict[Hashable, V] = {}

    def on(self, batch: StepBatch) -> V:
        """What holds for a batch.

        Raises:
            LowtideError: The model, the loss and the batch do not go together.
        """
        key = circumstances(self._modules, batch)
        known = self._known.get(key)
        if known is not None and len(known.varied) == len(leaves(batch.inputs)):
            self._model.manner = known.manner
            return known
        with torch.autocast(batch.device.type, enabled=False):
            sample = draw_sample(batch, steps=self._sample_steps(batch))
        if known is None or sample.varied - known.varied:
            found = self._check(batch, sample)
            known = found if known is None else replace(found, varied=found.varied | known.varied)
            self._known[key] = known
        self._model.manner = known.manner
        return known


def circumstances(modules: Sequence[nn.Module], batch: StepBatch) -> Hashable:
    """What a model has to be tried again for when it changes: its modes, the kind of data, autocast."""
    parts = [part for module in modules for part in module.modules()]
    return (
        tuple((id(part), type(part), part.training) for part in parts),
        tuple(parameter.requires_grad for module in modules for parameter in module.parameters()),
        tuple((len(leaf.shape), str(getattr(leaf, "dtype", ""))) for leaf in leaves(batch.inputs)),
        batch.lengths is not None,
        AutocastState.current(batch.device.type),
    )
