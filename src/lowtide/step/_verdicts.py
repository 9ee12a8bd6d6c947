"""What is known of a model, by the circumstances in which it was tried: tried again where these change.

A model in evaluation mode, or one that was tried on a batch without padding, says little about the same model in
training or with padding. And a batch that never changes in time hides what mixes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch
from torch import nn

from lowtide.ops.autocast import AutocastState
from lowtide.step._batch import StreamBatch
from lowtide.step._check import Verdict, check_streamable
from lowtide.step._loss import StepLoss
from lowtide.step._model import StreamedModel
from lowtide.step._sample import draw_sample
from lowtide.step._sequence import leaves


class Verdicts:
    """Tries a model once in all the circumstances that it comes in."""

    def __init__(self, model: StreamedModel, loss: StepLoss, modules: Sequence[nn.Module], *, stateful: bool) -> None:
        """Nothing is known yet.

        Args:
            model: What is trained.
            loss: By what.
            modules: What of both has parameters.
            stateful: Whether states are carried from call to call.
        """
        self._model = model
        self._loss = loss
        self._modules = modules
        self._stateful = stateful
        self._known: dict[Hashable, Verdict] = {}

    def on(self, batch: StreamBatch) -> Verdict:
        """What holds for a batch.

        Raises:
            LowtideError: The model, the loss and the batch do not go together.
        """
        key = self._circumstances(batch)
        known = self._known.get(key)
        if known is not None and len(known.varied) == len(leaves(batch.inputs)):
            self._model.manner = known.manner
            return known
        with torch.autocast(batch.device.type, enabled=False):
            sample = draw_sample(batch)
        if known is None or sample.varied - known.varied:
            found = check_streamable(
                self._model, self._loss, batch, sample, parameters_of=self._modules, stateful=self._stateful
            )
            known = found if known is None else replace(found, varied=found.varied | known.varied)
            self._known[key] = known
        self._model.manner = known.manner
        return known

    def _circumstances(self, batch: StreamBatch) -> Hashable:
        parts = [part for module in self._modules for part in module.modules()]
        return (
            tuple((id(part), type(part), part.training) for part in parts),
            tuple(parameter.requires_grad for module in self._modules for parameter in module.parameters()),
            tuple((len(leaf.shape), str(getattr(leaf, "dtype", ""))) for leaf in leaves(batch.inputs)),
            batch.lengths is not None,
            AutocastState.current(batch.device.type),
        )
