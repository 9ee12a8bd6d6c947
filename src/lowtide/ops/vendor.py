"""Torch's own fused layers under Lowtide's keep modes: for CUDA, projections, and dtypes without native kernels.

    gates       the whole stack in torch's own call, whose autograd keeps everything
    outputs     layer by layer in chunks of time steps: each layer's output and the states at chunk starts are kept
    boundaries  the whole stack chunk by chunk: only the states of all layers at chunk starts are kept, and the result

A bidirectional stack needs both whole directions between its layers, and a single layer has nothing between: there,
"boundaries" equals "outputs". States are kept at each chunk's start, so `StackSpec.state_steps` has no use here.

On a CPU all modes drop what the stock layer drops under one seed; with lengths, what it drops from the same batch
packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lowtide.ops.chunked import ChunkedRun, run_chunked
from lowtide.ops.dropout import draw_masks
from lowtide.ops.fused import State, initial_state, run_fused
from lowtide.ops.layout import Layout, Padded, lay_out
from lowtide.ops.spec import StackSpec

_Result = tuple[Tensor, State]

_LEAST_CHUNK_STEPS = {"cpu": 64, "cuda": 128}
"""Shorter chunks pay more for each call than they save; a call costs a GPU more."""


def vendor_stack(
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run the whole stack; the contract is `run_stack`'s."""
    sequences = inputs.shape[1] if batch_sizes is None else int(batch_sizes[0])
    state = initial_state(spec, inputs, sequences, h0, c0)
    if spec.keep != "gates":
        steps = inputs.shape[0] if batch_sizes is None else len(batch_sizes)
        chunk_steps = spec.chunk_steps or default_chunk_steps(steps, inputs.device.type)
        layout = lay_out(inputs, batch_sizes, lengths, chunk_steps)
        outputs, final = _in_chunks(spec, inputs, state, weights, layout)
    elif lengths is None:
        outputs, final = run_fused(spec, inputs, state, weights, batch_sizes=batch_sizes)
    else:
        outputs, final = _padded_at_once(spec, inputs, state, weights, lengths)
    return outputs, final[0], final[1] if spec.has_cell_state else None


def default_chunk_steps(steps: int, device_type: str) -> int:
    """The chunk length where none is asked for.

    A chunk of K steps costs about 12 K states while it is differentiated, the chunk starts 2 T / K states throughout:
    least together at sqrt(T / 6).
    """
    return max(_LEAST_CHUNK_STEPS.get(device_type, 64), isqrt(steps // 6))


def _in_chunks(spec: StackSpec, inputs: Tensor, state: State, weights: Sequence[Tensor], layout: Layout) -> _Result:
    """Keep "outputs" or "boundaries"."""
    masks: list[Tensor | None] = [None, *draw_masks(spec, layout.rows, inputs.device)]
    masks += [None] * (spec.num_layers - len(masks))
    if isinstance(layout, Padded):
        state = _reordered(state, layout.order)
    if spec.keep == "boundaries" and not spec.bidirectional:
        outputs, final = run_chunked(ChunkedRun(spec, layout), inputs, state, weights, masks)
    else:
        outputs, final = _layer_by_layer(spec, inputs, state, weights, masks, layout=layout)
    if isinstance(layout, Padded):
        final = _reordered(final, layout.order.argsort())
    return outputs, final


def _padded_at_once(
    spec: StackSpec, inputs: Tensor, state: State, weights: Sequence[Tensor], lengths: Tensor
) -> _Result:
    """Keep "gates" with lengths, by way of a PackedSequence. Empty sequences stay out of it and keep their state."""
    order = lengths.argsort(descending=True, stable=True)
    present = order[: int(lengths.count_nonzero())]
    if len(present) == 0:
        return inputs.new_zeros(*inputs.shape[:2], spec.output_size), state
    packed = pack_padded_sequence(inputs.index_select(1, present.to(inputs.device)), lengths[present])
    data, final = run_fused(spec, packed.data, _reordered(state, present), weights, batch_sizes=packed.batch_sizes)
    outputs, _ = pad_packed_sequence(packed._replace(data=data), total_length=inputs.shape[0])
    absent = _reordered(state, order[len(present) :])
    outputs = torch.nn.functional.pad(outputs, (0, 0, 0, len(lengths) - len(present)))
    final = tuple(torch.cat([part, rest.to(part.dtype)], 1) for part, rest in zip(final, absent, strict=True))
    back = order.argsort()
    return _reordered((outputs,), back)[0], _reordered(final, back)


def _layer_by_layer(
    spec: StackSpec,
    inputs: Tensor,
    state: State,
    weights: Sequence[Tensor],
    masks: Sequence[Tensor | None],
    *,
    layout: Layout,
) -> _Result:
    """Run each layer through all chunks before the next one, both directions of it in one go."""
    finals = []
    count = spec.directions * spec.weights_per_layer
    states = zip(*(part.tensor_split(spec.num_layers) for part in state), strict=True)
    rows = inputs
    for layer, below in enumerate(states):
        run = ChunkedRun(replace(spec, num_layers=1, input_size=rows.shape[-1]), layout)
        own = weights[layer * count : (layer + 1) * count]
        rows, final = run_chunked(run, rows, below, own, masks[layer : layer + 1])
        finals.append(final)
    return rows, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))


def _reordered(parts: State, order: Tensor) -> State:
    """The parts, (any, B, size), with these of their sequences in this order."""
    return tuple(part.index_select(1, order.to(part.device)) for part in parts)
