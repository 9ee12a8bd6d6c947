"""The native kernels as `torch.library` operators, for torch.compile and FakeTensor.

`lowtide::stack_forward` and `lowtide::stack_backward` are opaque to compilers: a fake implementation tells the shapes
and strides of their results, and the first one's registered backward formula calls the second. A StackSpec travels as
scalars: cell, keep, sizes and dropout. Padded batches are treated as if every step were valid wherever a size is
asked for, because the true number of rows is not known before the lengths are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from lowtide.ops.double_backward import refuse_double_backward
from lowtide.ops.dropout import draw_masks
from lowtide.ops.native_call import (
    ForwardResults,
    Wanted,
    choose_steps,
    drops_inner_outputs,
    new_gradient,
    new_kept,
    new_outputs,
    run_backward,
    run_forward,
)
from lowtide.ops.rows import BatchRows, check_range, dense_rows, packed_rows, padded_rows
from lowtide.ops.spec import Cell, Keep, StackSpec

_GIVEN = (
    "Tensor x, Tensor? h0, Tensor? c0, Tensor[] weights, Tensor[] masks, Tensor? batch_sizes, Tensor? lengths, "
    "SymInt batch, str cell, str keep, int[] sizes, float dropout"
)
_FORWARD = f"({_GIVEN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
_BACKWARD = (
    f"({_GIVEN}, Tensor y, Tensor inner, Tensor states, Tensor gates, Tensor? dy, Tensor? dh, Tensor? dc, "
    "bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor[])"
)


def operator_stack(
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run the stack as `run_stack` describes it, through operators that a compiler can record."""
    rows = inputs.shape[0] if batch_sizes is not None else inputs.shape[0] * inputs.shape[1]
    batch = inputs.shape[1] if batch_sizes is None else int(batch_sizes[0])
    masks = draw_masks(spec, rows, inputs.device)
    y, h, c, *_ = torch.ops.lowtide.stack_forward(
        inputs, h0, c0, list(weights), masks, batch_sizes, lengths, batch, *_scalars(spec)
    )
    return y, h, c if spec.has_cell_state else None


def _scalars(spec: StackSpec) -> tuple[str, str, list[int], float]:
    sizes = [
        spec.input_size,
        spec.hidden_size,
        spec.num_layers,
        int(spec.bias),
        int(spec.bidirectional),
        int(spec.batch_first),
        spec.chunk_steps,
        spec.state_steps,
    ]
    return spec.cell, spec.keep, sizes, spec.dropout


def _spec(cell: str, keep: str, sizes: Sequence[int], dropout: float) -> StackSpec:
    inputs, hidden, layers, bias, bidirectional, batch_first, chunk_steps, state_steps = sizes
    return StackSpec(
        cell=cast("Cell", cell),
        input_size=inputs,
        hidden_size=hidden,
        num_layers=layers,
        bias=bool(bias),
        bidirectional=bool(bidirectional),
        batch_first=bool(batch_first),
        dropout=dropout,
        keep=cast("Keep", keep),
        chunk_steps=chunk_steps,
        state_steps=state_steps,
    )


def _rows(x: Tensor, batch_sizes: Tensor | None, lengths: Tensor | None) -> BatchRows:
    if batch_sizes is not None:
        return packed_rows(batch_sizes)
    if lengths is None:
        return dense_rows(x.shape[0], x.shape[1])
    check_range(lengths, x.shape[0])
    return replace(padded_rows(lengths, x.shape[0]), total=x.shape[0] * x.shape[1])


def _fake_rows(x: Tensor, batch_sizes: Tensor | None, batch: int) -> BatchRows:
    """The sizes alone, which may be symbols."""
    if batch_sizes is None:
        return dense_rows(x.shape[0], batch)
    return replace(dense_rows(batch_sizes.shape[0], batch), total=x.shape[0])


def _distinct(tensor: Tensor | None, wanted: bool, like: Tensor) -> Tensor:
    """A tensor for every result of the operator, empty where the gradient is not wanted."""
    if not wanted:
        return like.new_empty(0)
    assert tensor is not None
    return tensor


@torch.library.custom_op("lowtide::stack_forward", mutates_args=(), schema=_FORWARD)
def stack_forward(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: list[Tensor],
    masks: list[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    batch: int,
    cell: str,
    keep: str,
    sizes: list[int],
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs and final states, and what the backward pass wants."""
    del batch  # only the fake implementation cannot know it
    rows = _rows(x, batch_sizes, lengths)
    spec = _spec(cell, keep, sizes, dropout)
    results = run_forward(spec, rows, x, (rows.sort(h0), rows.sort(c0)), weights, masks, keeps=True)
    c = rows.unsort(results.c) if spec.has_cell_state else results.c
    return results.y, rows.unsort(results.h), c, results.inner, results.states, results.gates


@stack_forward.register_fake
def _fake_forward(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: list[Tensor],
    masks: list[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    batch: int,
    cell: str,
    keep: str,
    sizes: list[int],
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    del h0, c0, weights, masks, lengths
    spec = _spec(cell, keep, sizes, dropout)
    rows = _fake_rows(x, batch_sizes, batch)
    h = x.new_empty(spec.num_layers * spec.directions, batch, spec.hidden_size)
    c = torch.empty_like(h) if spec.has_cell_state else x.new_empty(0)
    kept = new_kept(spec, rows, choose_steps(spec, rows.steps, rows.batch), x, keeps=True)
    return new_outputs(spec, x), h, c, *kept


@torch.library.custom_op("lowtide::stack_backward", mutates_args=(), schema=_BACKWARD)
def stack_backward(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: list[Tensor],
    masks: list[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    batch: int,
    cell: str,
    keep: str,
    sizes: list[int],
    dropout: float,
    y: Tensor,
    inner: Tensor,
    states: Tensor,
    gates: Tensor,
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Gradients of x, h0, c0 and the weights, empty where not wanted."""
    del batch
    rows = _rows(x, batch_sizes, lengths)
    spec = _spec(cell, keep, sizes, dropout)
    wants = Wanted(wanted[0], wanted[1], wanted[2], wanted[3:])
    results = run_backward(
        spec,
        rows,
        x,
        (rows.sort(h0), rows.sort(c0)),
        weights,
        masks,
        ForwardResults(y, y, y, inner, states, gates),
        (dy, rows.sort(dh), rows.sort(dc)),
        wants,
    )
    dh0, dc0 = (None if state is None else rows.unsort(state) for state in (results.h0, results.c0))
    dweights = [_distinct(grad, want, x) for grad, want in zip(results.weights, wants.weights, strict=True)]
    return _distinct(results.x, wants.x, x), _distinct(dh0, wants.h0, x), _distinct(dc0, wants.c0, x), dweights


@stack_backward.register_fake
def _fake_backward(
    x: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: list[Tensor],
    masks: list[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    batch: int,
    cell: str,
    keep: str,
    sizes: list[int],
    dropout: float,
    y: Tensor,
    inner: Tensor,
    states: Tensor,
    gates: Tensor,
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    del masks, batch_sizes, lengths, y, inner, states, gates, dy, dh, dc, dropout, cell, keep, h0, c0
    _, hidden, layers, _, bidirectional, *_ = sizes
    state = x.new_empty(layers * (1 + bidirectional), batch, hidden)
    dx = new_gradient(x) if wanted[0] else x.new_empty(0)
    dh0, dc0 = (torch.empty_like(state) if want else x.new_empty(0) for want in wanted[1:3])
    return (
        dx,
        dh0,
        dc0,
        [
            torch.empty_like(weight) if want else x.new_empty(0)
            for weight, want in zip(weights, wanted[3:], strict=True)
        ],
    )


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401 - torch.library's own
    x, h0, c0, weights, masks, batch_sizes, lengths, *scalars = inputs
    ctx.scalars = scalars
    ctx.counts = len(weights), len(masks)
    spec = _spec(*scalars[1:])
    y = output[0].new_empty(0) if drops_inner_outputs(spec) else output[0]
    ctx.save_for_backward(x, h0, c0, batch_sizes, lengths, *weights, *masks, y, *output[3:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401 - torch.library's own
    weight_count, mask_count = ctx.counts
    x, h0, c0, batch_sizes, lengths, *rest = ctx.saved_tensors
    weights, masks, kept = rest[:weight_count], rest[weight_count : weight_count + mask_count], rest[-4:]
    nothing = (None,) * (2 + len(ctx.scalars))
    if all(gradient is None for gradient in gradients[:3]):
        return (None, None, None, [None] * weight_count, [None] * mask_count, *nothing)
    spec = _spec(*ctx.scalars[1:])
    dc = gradients[2] if spec.has_cell_state else None
    wanted = [x.requires_grad, *(state is not None and state.requires_grad for state in (h0, c0))]
    wanted += [weight.requires_grad for weight in weights]
    dx, dh0, dc0, dweights = torch.ops.lowtide.stack_backward(
        x, h0, c0, weights, masks, batch_sizes, lengths, *ctx.scalars, *kept, *gradients[:2], dc, wanted
    )
    found = [grad if want else None for grad, want in zip((dx, dh0, dc0, *dweights), wanted, strict=True)]
    if not torch.compiler.is_compiling():
        found = list(refuse_double_backward(found, spec.cell, sources=(x, h0, c0, *weights, *gradients[:3])))
    return (*found[:3], found[3:], [None] * mask_count, *nothing)


stack_forward.register_autograd(_differentiate, setup_context=_set_up)
