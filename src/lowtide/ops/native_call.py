"""A stack's forward and backward pass by the native kernels, on tensors: no autograd here, only addresses and sizes.

Everything that a call points at is held by the caller until the call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lowtide import kernels
from lowtide.ops.rows import BatchRows
from lowtide.ops.spec import StackSpec

# Threads of a second pool would fight the spinning ones of torch's, so the kernels run on torch's own team.
kernels.adopt_openmp(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))

_CHUNK_ROWS = 512
"""Rows of a chunk: enough for the batched products to run at full speed, few enough to stay in the cache."""
_LEAST_CHUNK_STEPS = 16
_SINGLE_THREAD_PRODUCTS = 1 << 18
"""Multiplications below which waking a second thread costs more than it saves."""


class ForwardResults(NamedTuple):
    """What a forward pass returns, and below it what only the backward pass wants (empty where not kept)."""

    y: Tensor
    h: Tensor
    c: Tensor
    inner: Tensor
    """Outputs of all layers but the last, row after row: (L - 1, rows, width)."""
    states: Tensor
    """(layers * directions, kept states, elements), laid out as the kernels like it."""
    gates: Tensor
    """(layers * directions, elements), likewise."""


class BackwardResults(NamedTuple):
    """Gradients, None where not wanted; those of the weights in their order."""

    x: Tensor | None
    h0: Tensor | None
    c0: Tensor | None
    weights: list[Tensor | None]


class Wanted(NamedTuple):
    """Which gradients a backward pass computes."""

    x: bool
    h0: bool
    c0: bool
    weights: Sequence[bool]


class Steps(NamedTuple):
    """Steps whose gates exist at once, and steps between kept states."""

    chunk: int
    state: int


def drops_inner_outputs(spec: StackSpec) -> bool:
    """Whether only the last layer's outputs survive: both whole directions are needed between bidirectional layers."""
    return spec.keep == "boundaries" and spec.num_layers > 1 and not spec.bidirectional


def choose_steps(spec: StackSpec, steps: int, batch: int) -> Steps:
    """Take the spec's steps, or those that are fast (and, under "boundaries", small)."""
    chunk = spec.chunk_steps
    if chunk == 0:
        chunk = max(_LEAST_CHUNK_STEPS, -(-_CHUNK_ROWS // batch))
        if drops_inner_outputs(spec):
            # Per layer, sequence and unit a step of a chunk takes about 7 floats, a kept state 2: K steps a chunk are
            # best near 7 K = 2 T / K. Doubling keeps a compiler that knows T as a symbol at one graph.
            while 7 * chunk * chunk < 2 * steps:
                chunk *= 2
        if spec.state_steps:
            chunk = min(chunk, spec.state_steps)
    if drops_inner_outputs(spec):
        chunk = max(chunk, spec.state_steps)
        return Steps(chunk, chunk)
    return Steps(chunk, -(-max(spec.state_steps, chunk) // chunk) * chunk)


def kept_sizes(spec: StackSpec, dtype: torch.dtype) -> tuple[int, int]:
    """Elements of a kept state for each sequence, and of kept gates for each row."""
    call = kernels.Call(spec.num_layers, spec.directions)
    _describe_spec(call, spec, dtype)
    call.batch = call.total_rows = call.steps = 1
    return kernels.sizes(call)


def new_outputs(spec: StackSpec, x: Tensor) -> Tensor:
    """Make the outputs, laid out in memory as the spec says: callers reshape them without a copy, as with torch's."""
    if x.dim() == 2:  # noqa: PLR2004 - packed data
        return x.new_empty(x.shape[0], spec.output_size)
    steps, batch = x.shape[:2]
    if spec.batch_first:
        return x.new_empty(batch, steps, spec.output_size).transpose(0, 1)
    return x.new_empty(steps, batch, spec.output_size)


def new_gradient(x: Tensor) -> Tensor:
    """Make the gradient of dense or packed inputs, laid out as they are."""
    if x.dim() == 3 and _is_batch_first(x):  # noqa: PLR2004 - dense
        return x.new_empty(x.shape[1], x.shape[0], x.shape[2]).transpose(0, 1)
    return x.new_empty(x.shape)


def run_forward(
    spec: StackSpec,
    rows: BatchRows,
    x: Tensor,
    states: tuple[Tensor | None, Tensor | None],
    weights: Sequence[Tensor],
    masks: Sequence[Tensor],
    *,
    keeps: bool,
) -> ForwardResults:
    """Run the stack; `keeps` says whether a backward pass may follow."""
    steps = choose_steps(spec, rows.steps, rows.batch)
    x, weights = _contiguous_features(x), [weight.resolve_neg().contiguous() for weight in weights]
    h0, c0 = (_plain(state) for state in states)
    count = spec.num_layers * spec.directions
    y = new_outputs(spec, x)
    _clear_past(y, rows)
    h = x.new_empty(count, rows.batch, spec.hidden_size)
    c = torch.empty_like(h) if spec.has_cell_state else x.new_empty(0)
    inner, kept, gates = new_kept(spec, rows, steps, x, keeps=keeps)

    _on_huge_pages(y, inner, gates)
    call = _describe(spec, rows, steps, x, weights, masks)
    if not keeps and inner.numel() == 0:
        call.keep = kernels.Keep.boundaries  # what lies between layers is scratch then
        call.state_steps = call.chunk_steps
    call.y = _rows_of(y, rows)
    call.inner = inner.data_ptr()
    for i in range(count):
        layer = call.layer(i)
        layer.h0, layer.c0 = _part(h0, i), _part(c0, i)
        layer.hT, layer.cT = _part(h, i), _part(c, i)
        layer.states, layer.gates = _part(kept, i), _part(gates, i)
    kernels.forward(call)
    return ForwardResults(y, h, c, inner, kept, gates)


def new_kept(
    spec: StackSpec, rows: BatchRows, steps: Steps, x: Tensor, *, keeps: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Make the buffers between forward and backward: inner outputs, states, gates."""
    count = spec.num_layers * spec.directions
    inner, kept, gates = (x.new_empty(0) for _ in range(3))
    if spec.num_layers > 1 and not drops_inner_outputs(spec) and (keeps or spec.bidirectional):
        inner = x.new_empty(spec.num_layers - 1, rows.total, spec.output_size)
    if not keeps:
        return inner, kept, gates
    state_elements, gate_elements = kept_sizes(spec, x.dtype)
    if state_elements:
        kept = x.new_empty(count, -(-rows.steps // steps.state), rows.batch * state_elements)
    if gate_elements:
        gates = x.new_empty(count, rows.total * gate_elements)
    return inner, kept, gates


def run_backward(
    spec: StackSpec,
    rows: BatchRows,
    x: Tensor,
    states: tuple[Tensor | None, Tensor | None],
    weights: Sequence[Tensor],
    masks: Sequence[Tensor],
    forward: ForwardResults,
    gradients: tuple[Tensor | None, Tensor | None, Tensor | None],
    wanted: Wanted,
) -> BackwardResults:
    """From the gradients of y, hT and cT (None: zero) to those of everything that is wanted."""
    steps = choose_steps(spec, rows.steps, rows.batch)
    x, weights = _contiguous_features(x), [weight.resolve_neg().contiguous() for weight in weights]
    h0, c0 = (_plain(state) for state in states)
    dy = None if gradients[0] is None else _contiguous_features(gradients[0])
    dh, dc = (_plain(gradient) for gradient in gradients[1:])
    count = spec.num_layers * spec.directions
    dx = new_gradient(x) if wanted.x else None
    if dx is not None:
        _on_huge_pages(dx)
        _clear_past(dx, rows)
    dh0, dc0 = (x.new_empty(count, rows.batch, spec.hidden_size) if want else None for want in (wanted.h0, wanted.c0))
    dweights = [
        torch.empty_like(weight) if want else None for weight, want in zip(weights, wanted.weights, strict=True)
    ]

    call = _describe(spec, rows, steps, x, weights, masks)
    call.inner = forward.inner.data_ptr()
    if not drops_inner_outputs(spec):
        call.y = _rows_of(forward.y, rows)
    if dy is not None:
        call.dy = _rows_of(dy, rows)
    if dx is not None:
        call.dx = _rows_of(dx, rows)
    for i in range(count):
        layer = call.layer(i)
        layer.h0, layer.c0 = _part(h0, i), _part(c0, i)
        layer.states, layer.gates = _part(forward.states, i), _part(forward.gates, i)
        layer.dhT, layer.dcT = _part(dh, i), _part(dc, i)
        layer.dh0, layer.dc0 = _part(dh0, i), _part(dc0, i)
        layer.dw_ih, layer.dw_hh, layer.db_ih, layer.db_hh = _weight_addresses(spec, dweights, i)
    kernels.backward(call)
    return BackwardResults(dx, dh0, dc0, dweights)


def _describe_spec(call: kernels.Call, spec: StackSpec, dtype: torch.dtype) -> None:
    call.cell = kernels.Cell[spec.cell]
    call.keep = kernels.Keep[spec.keep]
    call.is_double = dtype == torch.float64
    call.inputs, call.hidden = spec.input_size, spec.hidden_size


def _describe(
    spec: StackSpec, rows: BatchRows, steps: Steps, x: Tensor, weights: Sequence[Tensor], masks: Sequence[Tensor]
) -> kernels.Call:
    call = kernels.Call(spec.num_layers, spec.directions)
    _describe_spec(call, spec, x.dtype)
    call.steps, call.batch, call.total_rows = rows.steps, rows.batch, rows.total
    call.chunk_steps, call.state_steps = steps.chunk, steps.state
    call.threads = _threads(spec, rows)
    call.zero_padding = rows.is_padded
    call.rows_at_time, call.start_at_time = _address(rows.at_time), _address(rows.before_time)
    call.start_at_step_reverse = _address(rows.before_step_reversed)
    call.x = _rows_of(x, rows)
    if masks:
        # as torch rounds it: the mask itself is divided by 1 - p, in the tensor's own type
        noise = torch.ones((), dtype=x.dtype)
        call.dropout_scale = float(noise if spec.dropout == 1 else noise.div_(1 - spec.dropout))
    for i in range(spec.num_layers * spec.directions):
        layer = call.layer(i)
        layer.w_ih, layer.w_hh, layer.b_ih, layer.b_hh = _weight_addresses(spec, weights, i)
        if masks and i >= spec.directions:
            layer.mask = masks[i // spec.directions - 1].data_ptr()
    return call


def _rows_of(tensor: Tensor, rows: BatchRows) -> kernels.Rows:
    place = kernels.Rows()
    place.base = tensor.data_ptr()
    if tensor.dim() == 2:  # noqa: PLR2004 - packed data
        place.row_stride = tensor.stride(0)
        place.step_stride = rows.batch * place.row_stride
        place.step_start = _address(rows.before_time)
    else:
        place.step_stride, place.row_stride = tensor.stride(0), tensor.stride(1)
        place.row_index = _address(rows.order)
    return place


def _threads(spec: StackSpec, rows: BatchRows) -> int:
    products = rows.total * spec.hidden_size * (spec.input_size + spec.hidden_size)
    return 1 if products < _SINGLE_THREAD_PRODUCTS else torch.get_num_threads()


def _contiguous_features(tensor: Tensor) -> Tensor:
    tensor = tensor.resolve_neg()
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _plain(tensor: Tensor | None) -> Tensor | None:
    """The tensor as an address tells it: contiguous, and negative numbers written out rather than marked."""
    return None if tensor is None else tensor.resolve_neg().contiguous()


def _on_huge_pages(*fresh: Tensor) -> None:
    """Ask for huge pages below tensors that were just allocated and will be written whole."""
    for tensor in fresh:
        kernels.prefer_huge_pages(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _clear_past(tensor: Tensor, rows: BatchRows) -> None:
    """Zero the steps that the kernels do not visit, beyond the longest sequence of a padded batch."""
    if rows.is_padded and rows.steps < tensor.shape[0]:
        tensor[rows.steps :].zero_()


def _is_batch_first(x: Tensor) -> bool:
    return x.stride(0) < x.stride(1)


def _weight_addresses(spec: StackSpec, weights: Sequence[Tensor | None], index: int) -> list[int]:
    """Where w_ih, w_hh, b_ih and b_hh of one layer and direction lie."""
    own = weights[index * spec.weights_per_layer : (index + 1) * spec.weights_per_layer]
    return [_address(weight) for weight in own] + [0] * (4 - len(own))


def _part(tensor: Tensor | None, index: int) -> int:
    return 0 if tensor is None or tensor.numel() == 0 else tensor[index].data_ptr()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
