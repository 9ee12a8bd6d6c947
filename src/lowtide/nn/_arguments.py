"""The arguments of a layer's call in the one form that `ops` takes, or the finding that torch has to judge them.

What the stock layer accepts is torch's to say, and its refusals come from two places: Python checks, and C++ deep in
the computation. So nothing of that is copied here. A call is either plainly in order, and then read, or it is handed
to the stock layer, which refuses it in its own words or, in the few cases outside Lowtide's reach (an empty batch,
complex numbers), runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lowtide.ops.spec import GATES, StackSpec

States = Tensor | Sequence[Tensor]

_ONE_SEQUENCE = 2
"""Dimensions of an input without a batch; a batch has one more. Rows of packed data have as many."""
_BATCH = 3


class StackArguments(NamedTuple):
    """Everything that `run_stack` takes beside the spec."""

    data: Tensor
    """(T, B, I), or the (rows, I) data of a PackedSequence."""
    states: tuple[Tensor, ...]
    """h0, or h0 and c0, each (layers * directions, B, size) in the order of `data`; empty where none were given."""
    weights: list[Tensor]
    batch_sizes: Tensor | None
    """Sequences alive at each step, for packed data."""
    sequences: int
    steps: int


def read_arguments(
    spec: StackSpec, inputs: Tensor | PackedSequence, hx: States | None, weights: list[Tensor], *, batch_first: bool
) -> StackArguments | None:
    """Bring a call into `run_stack`'s form; None where torch has to judge it."""
    states = _read_states(spec, hx)
    if states is None or not isinstance(inputs, (Tensor, PackedSequence)):
        return None
    if isinstance(inputs, PackedSequence):
        arguments = _read_packed(spec, inputs, states, weights)
    else:
        arguments = _read_dense(spec, inputs, states, weights, batch_first=batch_first)
    if arguments is None or not _is_in_order(spec, arguments):
        return None
    return _sort_states(arguments, inputs) if isinstance(inputs, PackedSequence) else arguments


def is_one_sequence(inputs: Tensor) -> bool:
    """Whether a dense input lacks the batch dimension."""
    return inputs.dim() == _ONE_SEQUENCE


def _read_states(spec: StackSpec, hx: States | None) -> tuple[Tensor, ...] | None:
    if hx is None:
        return ()
    if spec.has_cell_state != isinstance(hx, (tuple, list)):
        return None
    states = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
    fits = len(states) == 1 + spec.has_cell_state and all(isinstance(state, Tensor) for state in states)
    return states if fits else None


def _read_dense(
    spec: StackSpec, inputs: Tensor, states: tuple[Tensor, ...], weights: list[Tensor], *, batch_first: bool
) -> StackArguments | None:
    if (
        inputs.is_nested
        or inputs.dim() not in {_ONE_SEQUENCE, _BATCH}
        or any(state.dim() != inputs.dim() for state in states)
    ):
        return None
    if is_one_sequence(inputs):
        data = inputs.unsqueeze(1)
        states = tuple(state.unsqueeze(1) for state in states)
    else:
        data = inputs.transpose(0, 1) if batch_first else inputs
    steps, sequences, width = data.shape
    if width != spec.input_size:
        return None
    return StackArguments(data, states, weights, None, sequences, steps)


def _read_packed(
    spec: StackSpec, inputs: PackedSequence, states: tuple[Tensor, ...], weights: list[Tensor]
) -> StackArguments | None:
    data, batch_sizes = inputs.data, inputs.batch_sizes
    if data.is_nested or data.dim() != _ONE_SEQUENCE or data.shape[1] != spec.input_size:
        return None
    if not _are_batch_sizes(batch_sizes, rows=len(data)):
        return None
    return StackArguments(data, states, weights, batch_sizes, int(batch_sizes[0]), len(batch_sizes))


def _are_batch_sizes(batch_sizes: Tensor, *, rows: int) -> bool:
    """Whether the sizes never grow, none is zero, and they add up to the rows that are there."""
    if (
        batch_sizes.dim() != 1
        or batch_sizes.dtype != torch.int64
        or batch_sizes.device.type != "cpu"
        or len(batch_sizes) == 0
    ):
        return False
    if torch.compiler.is_compiling():
        return True
    grows = bool((batch_sizes[1:] > batch_sizes[:-1]).any())
    return not grows and int(batch_sizes[-1]) > 0 and int(batch_sizes.sum()) == rows


def _sort_states(arguments: StackArguments, inputs: PackedSequence) -> StackArguments:
    """Bring the states from the batch's own order into that of the packed data, longest sequence first."""
    order = inputs.sorted_indices
    if order is None:
        return arguments
    return arguments._replace(states=tuple(state.index_select(1, order) for state in arguments.states))


def _is_in_order(spec: StackSpec, arguments: StackArguments) -> bool:
    return (
        arguments.sequences > 0
        and arguments.steps > 0
        and _fit([state.shape for state in arguments.states], _state_shapes(spec, arguments.sequences))
        and [weight.shape for weight in arguments.weights] == list(weight_shapes(spec))
        and _live_together((arguments.data, *arguments.states, *arguments.weights))
    )


def _fit(shapes: list[torch.Size], expected: list[tuple[int, ...]]) -> bool:
    return not shapes or shapes == expected


def _state_shapes(spec: StackSpec, sequences: int) -> list[tuple[int, ...]]:
    rows = spec.num_layers * spec.directions
    h_shape = (rows, sequences, spec.state_size)
    return [h_shape, (rows, sequences, spec.hidden_size)] if spec.has_cell_state else [h_shape]


def weight_shapes(spec: StackSpec) -> Iterator[tuple[int, ...]]:
    """The shapes of a stack's weights, in torch's order."""
    gates = GATES[spec.cell] * spec.hidden_size
    for layer in range(spec.num_layers):
        for _ in range(spec.directions):
            yield gates, spec.output_size if layer else spec.input_size
            yield gates, spec.state_size
            if spec.bias:
                yield (gates,)
                yield (gates,)
            if spec.proj_size:
                yield spec.proj_size, spec.hidden_size


def _live_together(tensors: Sequence[Tensor]) -> bool:
    device = tensors[0].device
    return all(tensor.device == device and tensor.layout == torch.strided for tensor in tensors)
