"""Second derivatives: the fast paths have none, and say so only to whoever asks for one.

`backward` with create_graph=True asks for gradients that can be differentiated again. The first order is right and is
given; differentiating it again raises. (torch's `once_differentiable` does the same, but cannot name a way out.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from lowtide.errors import LowtideError
from lowtide.ops.spec import Cell

STOCK: dict[Cell, str] = {
    "lstm": "torch.nn.LSTM",
    "gru": "torch.nn.GRU",
    "rnn_tanh": "torch.nn.RNN",
    "rnn_relu": "torch.nn.RNN",
}


def refuse_double_backward(
    gradients: Sequence[Tensor | None], cell: Cell, *, sources: Iterable[Tensor | None] = ()
) -> tuple[Tensor | None, ...]:
    """Pass a backward's gradients on, guarded against being differentiated where the engine builds a graph of them.

    To be called last in a backward, under the grad mode it was entered with. `sources` are what the gradients depend
    on, as autograd knows it: inputs, states and weights (from `ctx.saved_tensors`) and the incoming gradients. Without
    them .backward() on a gradient still raises, but torch.autograd.grad finds no way from a gradient back to an input:
    it takes the one for a constant of the other.
    """
    if not torch.is_grad_enabled():
        return tuple(gradients)
    present = [gradient.detach().requires_grad_() for gradient in gradients if gradient is not None]
    guarded = iter(_Guard.apply(cell, len(present), *present, *sources))  # type: ignore[no-untyped-call]
    return tuple(None if gradient is None else next(guarded) for gradient in gradients)


class _GuardContext(FunctionCtx):
    cell: Cell


class _Guard(torch.autograd.Function):
    """The identity on its first tensors, with a backward that refuses."""

    @staticmethod
    def forward(ctx: _GuardContext, cell: Cell, count: int, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.cell = cell
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count] if tensor is not None)

    @staticmethod
    def backward(ctx: _GuardContext, *_: Tensor) -> tuple[None, ...]:
        stock = STOCK[ctx.cell]
        raise LowtideError(
            what=f"The gradient of a lean {ctx.cell} was differentiated a second time.",
            why="Lean layers compute first derivatives only: they keep no graph of their backward pass.",
            fix=f"Use {stock} where second derivatives are needed, or lowtide.stock(model) for the whole model.",
        )
