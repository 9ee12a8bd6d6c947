"""Whether torch.func or a batched backward pass is at work: torch tells it through private names alone."""

from __future__ import annotations

import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.ops.double_backward import STOCK
from lowtide.ops.spec import Cell


def is_transforming() -> bool:
    """Whether a transform of torch.func (grad, vmap, jvp, ...) is in force."""
    return torch._C._are_functorch_transforms_active()  # noqa: SLF001 - there is no public name


def refuse_batched(gradients: tuple[Tensor | None, ...], cell: Cell) -> None:
    """Refuse gradients that stand for several: is_grads_batched, or vectorize=True of a Jacobian."""
    if any(gradient is not None and _is_batched(gradient) for gradient in gradients):
        raise LowtideError(
            what=f"Several gradients were sent at once through a lean {cell} (is_grads_batched or vectorize).",
            why="Its backward pass takes one gradient at a time.",
            fix=f"Send them one by one, or use {STOCK[cell]} there: lowtide.stock(model).",
        )


def _is_batched(tensor: Tensor) -> bool:
    known = torch._C._functorch  # noqa: SLF001 - there is no public name
    return known.is_batchedtensor(tensor) or known.is_legacy_batchedtensor(tensor)
