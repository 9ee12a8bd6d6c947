"""The native kernels made differentiable: `torch.autograd.Function` for eager calls, `torch.library` for the rest.

Eager calls take the autograd function because a custom operator's dispatch costs three times as much. torch.compile
and FakeTensor need the operators, which know the shapes of their results without running.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from lowtide.ops.double_backward import refuse_double_backward
from lowtide.ops.dropout import draw_masks
from lowtide.ops.functorch import refuse_batched
from lowtide.ops.native_call import (
    ForwardResults,
    Wanted,
    drops_inner_outputs,
    run_backward,
    run_forward,
)
from lowtide.ops.rows import BatchRows, dense_rows, packed_rows, padded_rows
from lowtide.ops.spec import StackSpec


def covers(spec: StackSpec, inputs: Tensor) -> bool:
    """Whether the kernels compute this stack."""
    return inputs.device.type == "cpu" and inputs.dtype in {torch.float32, torch.float64} and spec.proj_size == 0


def native_stack(
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run the stack as `run_stack` describes it."""
    if is_recorded(inputs):
        # registers the operators, which plain eager calls can do without
        from lowtide.ops.native_operator import operator_stack  # noqa: PLC0415

        return operator_stack(spec, inputs, h0, c0, weights, batch_sizes=batch_sizes, lengths=lengths)
    rows = rows_of(inputs, batch_sizes, lengths)
    if rows.steps == 0:
        return _no_steps(spec, inputs, h0, c0, weights)
    h0, c0 = rows.sort(h0), rows.sort(c0)
    masks = draw_masks(spec, rows.total, inputs.device)
    given = [inputs, h0, c0, *weights]
    if not (torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)):
        results = run_forward(spec, rows, inputs, (h0, c0), weights, masks, keeps=False)
        y, h, c = results.y, results.h, results.c
    else:
        y, h, c = _NativeStack.apply(spec, rows, masks, *given)  # type: ignore[no-untyped-call]
    return y, rows.unsort(h), rows.unsort(c) if spec.has_cell_state else None


def rows_of(inputs: Tensor, batch_sizes: Tensor | None, lengths: Tensor | None) -> BatchRows:
    """Find the rows of a batch in any of the layouts that `run_stack` takes."""
    if batch_sizes is not None:
        return packed_rows(batch_sizes)
    if lengths is None:
        return dense_rows(inputs.shape[0], inputs.shape[1])
    longest = int(lengths.max())
    return padded_rows(lengths, longest) if longest > 0 else dense_rows(0, inputs.shape[1])


def is_recorded(inputs: Tensor) -> bool:
    """Whether torch.compile or FakeTensor looks on rather than numbers being computed."""
    return torch.compiler.is_compiling() or type(inputs) not in {Tensor, torch.nn.Parameter}


def _no_steps(
    spec: StackSpec, inputs: Tensor, h0: Tensor | None, c0: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Only empty sequences: outputs of padding alone, states as they began."""
    zeros = weights[0].new_zeros(spec.num_layers * spec.directions, inputs.shape[1], spec.hidden_size)
    y = inputs.new_zeros(*inputs.shape[:2], spec.output_size)
    h = zeros if h0 is None else h0.clone()
    if not spec.has_cell_state:
        return y, h, None
    return y, h, zeros.clone() if c0 is None else c0.clone()


class _Context(FunctionCtx):
    spec: StackSpec
    rows: BatchRows
    masks: list[Tensor]
    saved_tensors: tuple[Tensor | None, ...]
    needs_input_grad: tuple[bool, ...]


class _NativeStack(torch.autograd.Function):
    """inputs: spec, rows, masks, x, h0, c0, weights…; outputs: y, hT, cT (empty where there is none)."""

    @staticmethod
    def forward(ctx: _Context, spec: StackSpec, rows: BatchRows, masks: list[Tensor], *given: Tensor | None) -> Any:  # noqa: ANN401 - autograd's own signature
        x, h0, c0, *weights = given
        results = run_forward(spec, rows, x, (h0, c0), weights, masks, keeps=True)  # type: ignore[arg-type]
        ctx.spec, ctx.rows, ctx.masks = spec, rows, masks
        y = results.y.new_empty(0) if drops_inner_outputs(spec) else results.y
        ctx.save_for_backward(*given, y, *results[3:])  # type: ignore[arg-type]
        ctx.set_materialize_grads(False)
        return results.y, results.h, results.c

    @staticmethod
    def backward(ctx: _Context, *gradients: Tensor | None) -> Any:  # noqa: ANN401 - autograd's own signature
        refuse_batched(gradients, ctx.spec.cell)
        *given, y, inner, states, gates = ctx.saved_tensors
        x, h0, c0, *weights = given
        if all(gradient is None for gradient in gradients):
            return (None,) * (3 + len(given))
        needed = ctx.needs_input_grad[3:]
        results = run_backward(
            ctx.spec,
            ctx.rows,
            x,  # type: ignore[arg-type]
            (h0, c0),
            weights,  # type: ignore[arg-type]
            ctx.masks,
            ForwardResults(y, y, y, inner, states, gates),  # type: ignore[arg-type]
            gradients,  # type: ignore[arg-type]
            Wanted(needed[0], needed[1], needed[2], needed[3:]),
        )
        found = (results.x, results.h0, results.c0, *results.weights)
        return (None, None, None, *refuse_double_backward(found, ctx.spec.cell, sources=(*given, *gradients)))
