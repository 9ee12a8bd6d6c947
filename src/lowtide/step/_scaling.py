"""A loss as it is differentiated: a GradScaler's work, or none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def scaled_by(scaler: torch.amp.GradScaler | None) -> Callable[[Tensor], Tensor]:
    """What a loss goes through before it is differentiated."""
    if scaler is None:
        return lambda loss: loss
    return scaler.scale
