"""One optimizer step's gradients, exactly: of sequences of any length and batches of any size, in little memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowtide.step.choice import Choice, StepPlan

if TYPE_CHECKING:
    from lowtide.step.planned import PlannedStep
    from lowtide.step.stream import StreamStep

__all__ = ["Choice", "PlannedStep", "StepPlan", "StreamStep"]

_WHEN_USED = {"PlannedStep": "planned", "StreamStep": "stream"}
"""Names whose modules need torch: a plan can be read without."""


def __getattr__(name: str) -> object:
    if name in _WHEN_USED:
        value: object = getattr(importlib.import_module(f"lowtide.step.{_WHEN_USED[name]}"), name)
        globals()[name] = value
        return value
    message = f"module 'lowtide.step' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
