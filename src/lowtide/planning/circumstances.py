"""What a plan belongs to: versions, threads, instruction set, allocator; and a fingerprint of all that decides it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide import kernels
from lowtide.memory.allocator import AllocatorReport
from lowtide.planning import code
from lowtide.planning.pattern import Pattern
from lowtide.planning.workload import Workload

VERSION = 1
"""Of how plans are made: another one makes them anew."""


def circumstances(device: torch.device, allocator: AllocatorReport) -> dict[str, str | int]:
    """What the figures of a plan belong to."""
    return {
        "lowtide": importlib.metadata.version("lowtide"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "instructions": kernels.isa(),
        "processor": _processor(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "mmap_threshold": allocator.mmap_threshold or 0,
        "huge_pages": str(allocator.huge_pages),
    }


def fingerprint(
    model: nn.Module,
    loss_fn: Any,  # noqa: ANN401 - a function or a module
    optimizer: Optimizer,
    workload: Workload,
    *,
    precision: str,
    around: dict[str, str | int],
) -> str:
    """A name for everything that decides a plan but the budget."""
    digest = hashlib.sha256()
    for part in (
        VERSION,
        repr(model),
        [(name, tuple(one.shape), str(one.dtype), one.requires_grad) for name, one in model.named_parameters()],
        [(name, tuple(one.shape), str(one.dtype)) for name, one in model.named_buffers()],
        [(module.training, code.told_values(module)) for module in model.modules()],
        [code.told(kind) for kind in dict.fromkeys(map(type, model.modules()))],
        code.told(loss_fn),
        type(optimizer).__qualname__,
        [[(key, repr(value)) for key, value in group.items() if key != "params"] for group in optimizer.param_groups],
        bool(optimizer.state),
        _shapes(workload.pattern),
        precision,
        sorted(around.items()),
        workload.batch_size,
        workload.ring_bytes,
    ):
        digest.update(json.dumps(part, default=str).encode())
    digest.update(workload.rows.tobytes())
    digest.update(workload.steps.tobytes())
    return digest.hexdigest()[:32]


def _shapes(pattern: Pattern) -> list[object]:
    return [sorted(pattern.parts), pattern.widths, pattern.batch_first, pattern.has_lengths]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
