"""Autocast as it was in the forward pass, for what the backward pass computes again.

The backward pass usually runs outside the context that the forward pass ran in (torch.utils.checkpoint does the same).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class AutocastState:
    """What torch.autocast was set to for one kind of device."""

    device_type: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def current(cls, device_type: str) -> AutocastState | None:
        """The state in force now; None for a kind of device that autocast does not know."""
        if not torch.amp.is_autocast_available(device_type):
            return None
        enabled = torch.is_autocast_enabled(device_type)
        return cls(device_type, enabled, torch.get_autocast_dtype(device_type))


def under(state: AutocastState | None) -> AbstractContextManager[None]:
    """The context that puts a state back in force.

    Without autocast's cache: it would hand the graph of one chunk's casts, freed by then, to the next chunk.
    """
    if state is None:
        return nullcontext()
    return torch.autocast(state.device_type, dtype=state.dtype, enabled=state.enabled, cache_enabled=False)
