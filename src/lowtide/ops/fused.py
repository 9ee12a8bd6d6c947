"""Torch's own fused recurrent layers, one call for a whole stack: cuDNN on a GPU, oneDNN or ATen on a CPU.

The vendor path makes this call for everything at once (`keep="gates"`) or for one chunk of time steps after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from lowtide.ops.dropout import apply_mask, draw_masks
from lowtide.ops.spec import StackSpec

State = tuple[Tensor, ...]
"""(h,) or, for an LSTM, (h, c); each (layers * directions, B, size)."""


def run_fused(
    spec: StackSpec,
    inputs: Tensor,
    state: State,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Run torch's fused stack over time-major (T, B, I) inputs, or over packed (rows, I) with `batch_sizes`.

    Dropout between the layers is drawn from torch's generator: on a CPU by the call itself.
    """
    # cuDNN would drop by a state of its own, which nobody can put back when the same is to be computed again.
    if inputs.is_cuda and spec.dropout > 0 and spec.num_layers > 1:
        return run_fused_by_layer(spec, inputs, state, weights, batch_sizes=batch_sizes)
    # torch has no stubs for these: the functional form of torch.nn.LSTM and its sisters.
    fused = cast("Any", getattr(torch._VF, spec.cell))  # noqa: SLF001 # type: ignore[attr-defined]
    state = tuple(part.contiguous() for part in state)  # cuDNN refuses the states of a stack's first few sequences else
    hx = state if spec.has_cell_state else state[0]
    # cuDNN keeps what a backward pass needs only when told to train; without dropout that changes no result.
    train = torch.is_grad_enabled() or spec.dropout > 0
    batch_first = False
    options = (list(weights), spec.bias, spec.num_layers, spec.dropout, train, spec.bidirectional)
    if batch_sizes is None:
        outputs, *final = fused(inputs, hx, *options, batch_first)
    else:
        outputs, *final = fused(inputs, batch_sizes, hx, *options)
    return outputs, tuple(final)


def run_fused_by_layer(
    spec: StackSpec,
    inputs: Tensor,
    state: State,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, State]:
    """What `run_fused` computes, with a call for each layer and dropout by masks drawn here."""
    masks = draw_masks(spec, inputs.shape[:-1].numel(), inputs.device)
    states = zip(*(part.tensor_split(spec.num_layers) for part in state), strict=True)
    count = spec.directions * spec.weights_per_layer
    rows, finals = inputs, []
    for layer, own in enumerate(states):
        if layer > 0 and masks:
            rows = apply_mask(masks[layer - 1], 0, rows, spec.dropout)
        one = replace(spec, num_layers=1, input_size=rows.shape[-1], dropout=0.0)
        rows, final = run_fused(one, rows, own, weights[layer * count : (layer + 1) * count], batch_sizes=batch_sizes)
        finals.append(final)
    return rows, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))


def initial_state(spec: StackSpec, inputs: Tensor, sequences: int, h0: Tensor | None, c0: Tensor | None) -> State:
    """The state to start from, with zeros for what is None."""
    rows = spec.num_layers * spec.directions
    if h0 is None:
        h0 = inputs.new_zeros(rows, sequences, spec.state_size)
    if not spec.has_cell_state:
        return (h0,)
    if c0 is None:
        c0 = inputs.new_zeros(rows, sequences, spec.hidden_size)
    return h0, c0


def contiguous_weights(spec: StackSpec, weights: Sequence[Tensor]) -> list[Tensor]:
    """The detached weights as cuDNN wants them: a copy in one buffer, which it would else make anew in every call.

    Elsewhere than under cuDNN they are what they are.
    """
    detached = [weight.detach() for weight in weights]
    if torch.compiler.is_compiling() or not detached[0].is_cuda:  # nothing that moves a tensor can be traced
        return detached
    cudnn = cast("Any", torch.backends.cudnn)  # annotated in part only
    if not (cudnn.enabled and cudnn.is_available()):  # cudnn.is_acceptable knows nothing of bfloat16
        return detached
    copies = [weight.clone() for weight in detached]
    batch_first = False
    # What torch.nn.RNNBase.flatten_parameters calls: it moves the copies into one buffer.
    torch._cudnn_rnn_flatten_weight(  # noqa: SLF001
        copies,
        spec.weights_per_layer,
        spec.input_size,
        cudnn.rnn.get_cudnn_mode(spec.cell.upper()),
        spec.hidden_size,
        spec.proj_size,
        spec.num_layers,
        batch_first,
        spec.bidirectional,
    )
    return copies
