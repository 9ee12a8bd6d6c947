"""The plain reference: a loop over time in a few lines a cell, differentiated by autograd, in any dtype.

Every other path is tested against it. It is slow and keeps everything.

Legend
    x  (B, I)  input of one step            w_ih  (G*H, I)  input weights, b_ih their bias
    h  (B, S)  state, the layer's output    w_hh  (G*H, S)  recurrent weights, b_hh their bias
    c  (B, H)  cell state of the LSTM       w_hr  (S, H)    projection of h, where there is one
    T steps, B sequences, I inputs, H hidden, S the width of h (H, or proj_size), G gates
    i, f, g, o: input, forget, candidate, output;  r, z, n: reset, update, new
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from lowtide.ops.fused import State, initial_state
from lowtide.ops.spec import Cell, StackSpec

Weights = Sequence[Tensor]


def lstm_step(gates_x: Tensor, gates_h: Tensor, state: State) -> State:
    """One step of an LSTM; h is not projected yet."""
    i, f, g, o = (gates_x + gates_h).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(gates_x: Tensor, gates_h: Tensor, state: State) -> State:
    """One step of a GRU whose reset gate acts after the product, as in torch, cuDNN and Keras."""
    r_x, z_x, n_x = gates_x.chunk(3, -1)
    r_h, z_h, n_h = gates_h.chunk(3, -1)
    z = (z_x + z_h).sigmoid()
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return ((1 - z) * n + z * state[0],)


def rnn_tanh_step(gates_x: Tensor, gates_h: Tensor, _state: State) -> State:
    """One step of a plain RNN with tanh."""
    return ((gates_x + gates_h).tanh(),)


def rnn_relu_step(gates_x: Tensor, gates_h: Tensor, _state: State) -> State:
    """One step of a plain RNN with relu."""
    return ((gates_x + gates_h).relu(),)


STEPS: dict[Cell, Callable[[Tensor, Tensor, State], State]] = {
    "lstm": lstm_step,
    "gru": gru_step,
    "rnn_tanh": rnn_tanh_step,
    "rnn_relu": rnn_relu_step,
}


def reference_stack(
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Weights,
    *,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
    masks: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run the whole stack; the contract is `run_stack`'s.

    `masks` are multiplied to the outputs of layers 0, 1, ... before the next layer reads them, each of that output's
    shape and scaled already. The reference draws none itself.
    """
    sequences = inputs.shape[1] if batch_sizes is None else int(batch_sizes[0])
    state = initial_state(spec, inputs, sequences, h0, c0)
    if batch_sizes is not None:
        valid = torch.arange(sequences) < batch_sizes[:, None]
        dense_masks = [_unpacked(mask, valid) for mask in masks]
        outputs, h, c = _stack(spec, _unpacked(inputs, valid), state, weights, valid=valid, masks=dense_masks)
        return outputs[valid.to(outputs.device)], h, c
    steps = len(inputs)
    limits = torch.full((sequences,), steps) if lengths is None else lengths
    return _stack(spec, inputs, state, weights, valid=torch.arange(steps)[:, None] < limits, masks=masks)


def _stack(
    spec: StackSpec, x: Tensor, initial: State, weights: Weights, *, valid: Tensor, masks: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All layers over dense (T, B, I) inputs of which only the `valid` (T, B) steps count."""
    valid = valid.to(x.device)
    x = torch.where(valid[:, :, None], x, 0)
    finals: list[State] = []
    for layer in range(spec.num_layers):
        halves = []
        for direction in range(spec.directions):
            row = layer * spec.directions + direction
            own = weights[row * spec.weights_per_layer : (row + 1) * spec.weights_per_layer]
            state = tuple(part[row] for part in initial)
            half, final = _layer(spec, x, state, own, valid, reverse=direction == 1)
            halves.append(half)
            finals.append(final)
        x = torch.cat(halves, -1)
        if layer < len(masks):
            x = x * masks[layer]
    h, *rest = (torch.stack(parts) for parts in zip(*finals, strict=True))
    return x, h, rest[0] if rest else None


def _layer(
    spec: StackSpec, x: Tensor, state: State, weights: Weights, valid: Tensor, *, reverse: bool
) -> tuple[Tensor, State]:
    """One direction of one layer; a sequence's state stands still wherever its steps are not valid."""
    w_ih, w_hh, *more = weights
    b_ih, b_hh = more[:2] if spec.bias else (None, None)
    w_hr = more[-1] if spec.proj_size else None
    outputs = []
    for t in sorted(range(x.shape[0]), reverse=reverse):
        h, *c = STEPS[spec.cell](linear(x[t], w_ih, b_ih), linear(state[0], w_hh, b_hh), state)
        h = h if w_hr is None else linear(h, w_hr)
        counts = valid[t, :, None]
        outputs.append(torch.where(counts, h, 0))
        state = tuple(torch.where(counts, new, old) for new, old in zip((h, *c), state, strict=True))
    return torch.stack(outputs[::-1] if reverse else outputs), state


def _unpacked(rows: Tensor, valid: Tensor) -> Tensor:
    """Packed (rows, width) as dense (T, B, width): `valid` counts its entries in the order that packing does."""
    dense = rows.new_zeros(*valid.shape, rows.shape[-1])
    return dense.masked_scatter(valid[:, :, None].to(rows.device), rows)
