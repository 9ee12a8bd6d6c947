"""What a plan belongs to: versions, threads, instruction set, allocator; and a fingerprint of all that decides it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide import kernels
from lowtide.memory.allocator import AllocatorReport
from lowtide.planning.pattern import Pattern
from lowtide.planning.workload import Workload
from lowtide.step._sequence import leaves

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
        [(module.training, sorted(_code_of(type(module)))) for module in model.modules()],
        sorted(_code_of(loss_fn)),
        repr(loss_fn) if isinstance(loss_fn, nn.Module) else "",
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
    shapes = [(tuple(leaf.shape[2:]), str(leaf.dtype)) for leaf in leaves(pattern.parts)]
    return [sorted(pattern.parts), shapes, pattern.batch_first, pattern.has_lengths]


def _code_of(thing: Any) -> Iterator[str]:  # noqa: ANN401 - a class, a function or an object
    """The code of a function, or of all functions of a class, as text that is the same in every process."""
    if isinstance(thing, FunctionType):
        yield _told(thing.__code__)
    elif isinstance(thing, type):
        for one in vars(thing).values():
            if isinstance(one, FunctionType):
                yield _told(one.__code__)
    elif hasattr(thing, "func"):  # functools.partial
        yield from _code_of(thing.func)
        yield repr((thing.args, thing.keywords))
    else:
        yield type(thing).__qualname__


def _told(code: CodeType) -> str:
    constants = [_told(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
