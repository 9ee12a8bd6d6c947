"""What torch wraps around a module, and how to get at the module inside."""

from __future__ import annotations

from typing import cast

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> tuple[nn.Module, dist.ProcessGroup | None]:
    """The module inside of torch's wrappers, and the ranks that share its gradients; None for a model of its own."""
    group = None
    while True:
        if isinstance(model, DistributedDataParallel):
            group, model = model.process_group, model.module
        elif hasattr(model, "_orig_mod"):  # compiled
            model = cast("nn.Module", model._orig_mod)  # noqa: SLF001 - torch.compile's only way back
        else:
            return model, group
