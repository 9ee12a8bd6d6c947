"""A user's loss in the form that steps take: a value per step or per sequence, and how much each of them counts.

`loss_fn(outputs, targets)` gives (B, T) (or (T, B), as the model's data lie) or (B,). The step takes its mean over the
valid steps, or the sequences, of the whole effective batch, times a weight where one is given. torch's own loss modules
are taken with their reduction set to none and their classes last, and counted as they count: ignored targets and class
weights go into the divisor of "mean", and "sum" has none.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from lowtide.errors import LowtideError
from lowtide.nn import losses as own_losses

LossFunction = Callable[[Any, Any], Any]
"""What a user gives; that tensors come out of it is checked when it runs."""

_RULE = (
    "a loss function gives one value per step, of the shape that the data have, (B, T) or (T, B), or one per sequence, "
    "(B,): only then can valid steps be weighted over the whole effective batch"
)
_FIX = (
    "use one of lowtide.nn.losses or one of torch's loss modules, or have your function reduce over features alone "
    '(reduction="none" and a mean over the last axis)'
)
_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)
_TAKEN = (
    nn.CrossEntropyLoss,
    nn.NLLLoss,
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.PoissonNLLLoss,
    nn.SoftMarginLoss,
)
"""Losses that are a mean over elements, or over rows of classes."""
_Classes = nn.CrossEntropyLoss | nn.NLLLoss | own_losses.LinearCrossEntropy


class StepLoss:
    """A loss function, checked at each use."""

    def __init__(self, function: LossFunction) -> None:
        """Take a function or a module."""
        self._averages_features = _is_own(function)
        self._sums = False
        self._function: LossFunction = function
        self._classes: _Classes | None = function if isinstance(function, own_losses.LinearCrossEntropy) else None
        module = _as_module(function)
        if module is not None:
            self._averages_features = True
            self._sums = module.reduction == "sum"
            self._function = _Elementwise(module)
            self._classes = module if isinstance(module, _CLASSES) else None
        elif isinstance(function, _Loss) and type(function).__module__.startswith("torch."):
            raise LowtideError(what=f"{type(function).__name__} cannot be taken apart into steps", why=_RULE, fix=_FIX)

    def values(self, outputs: Any, targets: Any, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401 - any structure
        """The loss per step or per sequence.

        Args:
            outputs: What the model gave.
            targets: What it should have given.
            shape: The shape that the values must have.
        """
        return self.shaped(self.raw(outputs, targets), shape)

    def raw(self, outputs: Any, targets: Any) -> Any:  # noqa: ANN401 - any structure, and whatever comes out
        """What the function gives, unchecked."""
        return self._function(outputs, targets)

    def is_per_step(self, raw: Any, of_steps: tuple[int, int], sequences: int, *, has_time: bool | None) -> bool:  # noqa: ANN401 - whatever the function gave
        """Whether that is a value per step, rather than one per sequence.

        Where the shape could be of either, (B, F) with as many features as steps, it is taken for steps: without
        padding the mean is the same.

        Args:
            raw: What the function gave.
            of_steps: The shape of one value a step.
            sequences: How many values one a sequence are.
            has_time: Whether the outputs have an axis of time; None: not known.
        """
        shape = tuple(raw.shape) if isinstance(raw, Tensor) else ()
        steps_first = shape[:2] if self._averages_features else shape
        if steps_first == of_steps and has_time is not False:
            return True
        if (shape[:1] if self._averages_features else shape) == (sequences,):
            return False
        found = f"shape {shape}" if isinstance(raw, Tensor) else f"type {type(raw).__name__}"
        raise LowtideError(
            what=f"the loss has {found} where {of_steps} or {(sequences,)} is expected", why=_RULE, fix=_FIX
        )

    def shaped(self, raw: Any, shape: tuple[int, ...]) -> Tensor:  # noqa: ANN401 - whatever the function gave
        """What the function gave, of the shape that it must have; what torch leaves of features is averaged.

        Raises:
            LowtideError: It is of another shape.
        """
        values = raw
        if isinstance(values, Tensor) and self._averages_features and values.dim() > len(shape):
            over = tuple(range(len(shape), values.dim()))
            values = values.sum(over) if self._sums else values.mean(over)
        if not isinstance(values, Tensor) or values.shape != shape:
            found = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"type {type(values).__name__}"
            raise LowtideError(what=f"the loss has {found} where {shape} is expected", why=_RULE, fix=_FIX)
        return values

    def counts(self, targets: Any, shape: tuple[int, ...]) -> Tensor | None:  # noqa: ANN401 - any structure
        """How much each step or sequence counts in the divisor; None: each of them one."""
        module = self._classes
        if module is None or not isinstance(targets, Tensor) or targets.shape != shape:
            return None
        counted = targets != module.ignore_index
        weight = getattr(module, "weight", None)
        if weight is None:
            return counted.double()
        return torch.where(counted, weight.detach().double()[torch.where(counted, targets, 0)], 0)

    @property
    def counts_targets(self) -> bool:
        """Whether how much a step counts depends on its target."""
        return self._classes is not None

    @property
    def sums(self) -> bool:
        """Whether values are added up rather than averaged."""
        return self._sums


def _is_own(function: LossFunction) -> bool:
    plain = function.func if isinstance(function, functools.partial) else function
    return getattr(plain, "__module__", None) == own_losses.__name__


def _as_module(function: LossFunction) -> _Loss | None:
    """The torch module that a loss is, or stands for."""
    stock = next((one for one in _TAKEN if isinstance(function, one)), None)
    if isinstance(function, _Loss) and stock is not None:
        # A subclass with a forward of its own is a function like any other.
        plain = type(function).forward is stock.forward and function.reduction in {"mean", "sum", "none"}
        return function if plain else None
    inner, options = (function.func, function.keywords) if isinstance(function, functools.partial) else (function, {})
    return nn.CrossEntropyLoss(**options) if inner is own_losses.cross_entropy else None


class _Elementwise:
    """A torch loss module without its reduction, and with classes last."""

    def __init__(self, module: _Loss) -> None:
        self._module = copy.copy(module)
        self._module.reduction = "none"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not isinstance(self._module, _CLASSES):
            values: Tensor = self._module(*own_losses.fitted(outputs, targets))
            return values
        own_losses.check_classes(outputs, targets)
        shape = outputs.shape[:-1]
        flat: Tensor = self._module(
            outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1, *targets.shape[len(shape) :])
        )
        return flat.view(shape)
