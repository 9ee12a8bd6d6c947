"""What is set in torch for the whole process and changes what a step computes: the same in a child as here."""

from __future__ import annotations

from typing import Any

import torch

_SWITCHES = {
    "mkldnn": torch.backends.mkldnn,
    "cudnn": torch.backends.cudnn,
}
"""Backends with a switch `enabled`."""


def torch_settings() -> dict[str, Any]:
    """What is set here, in plain values."""
    return {
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        **{name: bool(backend.enabled) for name, backend in _SWITCHES.items()},
    }


def set_torch(settings: dict[str, Any]) -> None:
    """Set the same."""
    torch.set_default_dtype(getattr(torch, settings["default_dtype"]))
    torch.set_float32_matmul_precision(settings["matmul_precision"])
    torch.use_deterministic_algorithms(settings["deterministic"])
    for name, backend in _SWITCHES.items():
        if bool(backend.enabled) != settings[name]:
            backend.enabled = settings[name]  # type: ignore[attr-defined]
