"""Torch's fused layers chunk by chunk: only the states at chunk starts survive the forward pass.

The backward pass takes the chunks from the last to the first. It runs a chunk again, with gradients, from the state
kept at its start, feeds in the state gradient that its right neighbour left, and hands its own to the left. Extra
work: one forward pass. Memory beyond inputs and outputs: T / chunk_steps states, and the graph of one chunk. This is
back-propagation through time with equidistant checkpoints, of which about sqrt(T) balance the two (Chen et al. 2016,
arXiv:1604.06174).

h at chunk starts is kept with c, though it is a row of the output: so the output can be freed where nobody else needs
it, which is worth more than the 1 / chunk_steps of it that the copies cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from lowtide.ops.autocast import AutocastState, under
from lowtide.ops.double_backward import refuse_double_backward
from lowtide.ops.fused import State, contiguous_weights, run_fused
from lowtide.ops.layout import Chunk, Layout
from lowtide.ops.spec import StackSpec

_Item = TypeVar("_Item")

Masks = Sequence[Tensor | None]
"""For each layer of a run, the dropout mask of what it reads; None where nothing is dropped."""


@dataclass(frozen=True)
class ChunkedRun:
    """One run through a layout: several layers in one direction, or one layer in one or two."""

    spec: StackSpec
    """Of the layers that this run covers."""
    layout: Layout

    @property
    def one_direction(self) -> StackSpec:
        """The layers of one direction, with dropout left to the masks."""
        return replace(self.spec, bidirectional=False, dropout=0.0)

    def part(self, direction: int, tensors: Sequence[_Item]) -> list[_Item]:
        """One direction's share of the weights. With two there is only one layer."""
        count = len(tensors) // self.spec.directions
        return list(tensors[direction * count : (direction + 1) * count])

    def states(self, direction: int, state: State) -> State:
        """One direction's share of (layers * directions, B, size) states."""
        count = self.spec.num_layers
        return tuple(part[direction * count : (direction + 1) * count] for part in state)

    def half(self, direction: int, outputs: Tensor) -> Tensor:
        """The columns of the outputs that one direction writes."""
        return outputs.narrow(-1, direction * self.spec.state_size, self.spec.state_size)

    def compute(
        self, chunk: Chunk, rows: Tensor, state: State, weights: Sequence[Tensor], masks: Masks
    ) -> tuple[Tensor, State]:
        """Run one chunk over rows as `chunk.take` gives them; differentiable."""
        if masks[0] is not None:
            rows = chunk.drop(rows, masks[0], self.spec.dropout)
        rows = chunk.turn(rows)
        if len(masks) > 1 and masks[1] is not None:
            outputs, final = self._layer_by_layer(chunk, rows, state, weights, masks)
        else:
            outputs, final = _run_rows(self.one_direction, chunk, rows, state, weights)
        return chunk.turn(outputs), final

    def _layer_by_layer(
        self, chunk: Chunk, rows: Tensor, state: State, weights: Sequence[Tensor], masks: Masks
    ) -> tuple[Tensor, State]:
        finals = []
        count = self.spec.weights_per_layer
        for layer, mask in enumerate(masks):
            if layer > 0 and mask is not None:
                rows = chunk.drop(rows, mask, self.spec.dropout)
            spec = replace(self.one_direction, num_layers=1, input_size=rows.shape[-1])
            own = weights[layer * count : (layer + 1) * count]
            rows, final = _run_rows(spec, chunk, rows, tuple(part[layer : layer + 1] for part in state), own)
            finals.append(final)
        return rows, _concatenated(finals)


def run_chunked(
    run: ChunkedRun, inputs: Tensor, state: State, weights: Sequence[Tensor], masks: Masks
) -> tuple[Tensor, State]:
    """Run all chunks, differentiable in inputs, state and weights. States are in the layout's order of sequences."""
    assert run.spec.num_layers == 1 or run.spec.directions == 1
    tensors = (inputs, *state, *weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        results = _Chunked.apply(run, masks, *tensors)  # type: ignore[no-untyped-call]
        outputs, *final = cast("tuple[Tensor, ...]", results)
        return outputs, tuple(final)
    return _forward(run, inputs, state, weights, masks, starts=None)


class _Context(FunctionCtx):
    """What `_Chunked` keeps beside the saved tensors."""

    run: ChunkedRun
    masked: list[bool]
    """Which layers drop from what they read."""
    autocast: AutocastState | None
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _Chunked(torch.autograd.Function):
    """The chunks forward, then backward as described at the top of the file."""

    @staticmethod
    def forward(ctx: _Context, run: ChunkedRun, masks: Masks, inputs: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        parts = 1 + run.spec.has_cell_state
        state, weights = tensors[:parts], tensors[parts:]
        shape = (run.spec.directions, max(0, run.layout.chunks - 1), run.spec.num_layers)
        starts = tuple(part.new_empty(*shape, *part.shape[1:]) for part in state)
        outputs, final = _forward(run, inputs, state, weights, masks, starts=starts)
        ctx.set_materialize_grads(False)
        ctx.run = run
        ctx.autocast = AutocastState.current(inputs.device.type)
        ctx.masked = [mask is not None for mask in masks]
        ctx.save_for_backward(inputs, *state, *weights, *starts, *(mask for mask in masks if mask is not None))
        return outputs, *final

    @staticmethod
    def backward(ctx: _Context, d_outputs: Tensor | None, *d_final: Tensor | None) -> tuple[Tensor | None, ...]:
        run: ChunkedRun = ctx.run
        parts, weights = len(d_final), len(ctx.needs_input_grad) - 3 - len(d_final)
        inputs, *saved = ctx.saved_tensors
        sources = (inputs, *saved[: parts + weights], d_outputs, *d_final)
        masks = iter(saved[2 * parts + weights :])
        with torch.no_grad():
            backward = _Backward(
                run=run,
                inputs=inputs,
                state=tuple(saved[:parts]),
                weights=saved[parts : parts + weights],
                starts=tuple(saved[parts + weights : 2 * parts + weights]),
                masks=[next(masks) if masked else None for masked in ctx.masked],
                needs=ctx.needs_input_grad[2:],
                autocast=ctx.autocast,
            )
            gradients = backward(d_outputs, d_final)
        return None, None, *refuse_double_backward(gradients, run.spec.cell, sources=sources)


def _forward(
    run: ChunkedRun, inputs: Tensor, state: State, weights: Sequence[Tensor], masks: Masks, *, starts: State | None
) -> tuple[Tensor, State]:
    """Run all chunks; `starts`, (directions, chunks - 1, layers, B, size), receive states at later chunks' starts."""
    outputs: Tensor | None = None
    finals: list[State] = []
    for direction in range(run.spec.directions):
        own = contiguous_weights(run.one_direction, run.part(direction, weights))
        current = run.states(direction, state)
        for number in range(run.layout.chunks):
            if number > 0 and starts is not None:
                for kept, part in zip(starts, current, strict=True):
                    kept[direction, number - 1] = part
            chunk = run.layout.chunk(number, direction)
            rows, active = run.compute(chunk, chunk.take(inputs), chunk.active(current), own, masks)
            if outputs is None:
                outputs = _allocate(run, rows, inputs)
            chunk.put(run.half(direction, outputs), rows)
            current = chunk.merge(active, current)
        finals.append(current)
    if outputs is None:
        outputs = _allocate(run, inputs, inputs)
    return outputs, _concatenated(finals)


@dataclass(frozen=True)
class _Backward:
    """One backward pass over all chunks."""

    run: ChunkedRun
    inputs: Tensor
    state: State
    """The initial one."""
    weights: Sequence[Tensor]
    starts: State
    """At the starts of chunks 1, 2, ...: (directions, chunks - 1, layers, B, size) each."""
    masks: Masks
    needs: Sequence[bool]
    """Which gradients are wanted: inputs', each part of the state's, each weight's."""
    autocast: AutocastState | None

    def __call__(self, d_outputs: Tensor | None, d_final: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of inputs, state and weights."""
        empty = torch.empty_like if self.run.layout.covers else torch.zeros_like
        d_inputs = empty(self.inputs) if self.needs[0] else None
        pairs = zip(d_final, self.state, strict=True)
        d_state = tuple(torch.zeros_like(part) if gradient is None else gradient for gradient, part in pairs)
        d_states: list[State] = []
        d_weights: list[Tensor | None] = []
        for direction in range(self.run.spec.directions):
            walk = _Walk(self, direction, d_outputs)
            d_states.append(walk(d_inputs, self.run.states(direction, d_state)))
            d_weights += [total.result() for total in walk.sums]
        found = zip([d_inputs, *_concatenated(d_states), *d_weights], self.needs, strict=True)
        return [gradient if need else None for gradient, need in found]

    def start(self, direction: int, number: int) -> State:
        """The state that a chunk starts from."""
        if number == 0:
            return self.run.states(direction, self.state)
        return tuple(part[direction, number - 1] for part in self.starts)


class _Walk:
    """One direction of a backward pass, from the last chunk to the first."""

    def __init__(self, backward: _Backward, direction: int, d_outputs: Tensor | None) -> None:
        run = backward.run
        self.backward = backward
        self.direction = direction
        self.d_half = None if d_outputs is None else run.half(direction, d_outputs)
        self.leaves = contiguous_weights(run.one_direction, run.part(direction, backward.weights))
        needs = run.part(direction, backward.needs[1 + len(backward.state) :])
        for leaf, need in zip(self.leaves, needs, strict=True):
            leaf.requires_grad_(need)
        self.sums = [_Sum(leaf) for leaf in self.leaves]

    def __call__(self, d_inputs: Tensor | None, d_state: State) -> State:
        """Fill `d_inputs` (or add to it) and the sums; from the final state's gradient to the initial state's."""
        layout = self.backward.run.layout
        for number in reversed(range(layout.chunks)):
            chunk = layout.chunk(number, self.direction)
            start = chunk.active(self.backward.start(self.direction, number))
            d_rows, d_active, d_leaves = self._chunk(chunk, start, chunk.active(d_state))
            if d_inputs is not None and d_rows is not None:
                chunk.put(d_inputs, d_rows, add=self.direction > 0)
            d_state = chunk.merge(d_active, d_state)
            for total, gradient in zip(self.sums, d_leaves, strict=True):
                total.add(gradient)
        return d_state

    def _chunk(self, chunk: Chunk, start: State, d_final: State) -> tuple[Tensor | None, State, list[Tensor | None]]:
        """Run one chunk again and differentiate it: the gradients of its rows, of its first state, of the weights."""
        backward = self.backward
        rows = chunk.take(backward.inputs).detach().requires_grad_(backward.needs[0])
        state = tuple(part.detach().requires_grad_() for part in start)
        with torch.enable_grad(), under(backward.autocast):
            outputs, final = backward.run.compute(chunk, rows, state, self.leaves, backward.masks)
        results, d_results = [*final], [*d_final]
        if self.d_half is not None:
            results.append(outputs)
            d_results.append(chunk.take(self.d_half))
        d_results = [gradient.to(result.dtype) for gradient, result in zip(d_results, results, strict=True)]
        sources = (rows, *state, *self.leaves)
        found = iter(torch.autograd.grad(results, [source for source in sources if source.requires_grad], d_results))
        d_rows, *rest = (next(found) if source.requires_grad else None for source in sources)
        d_state = cast("list[Tensor]", rest[: len(state)])
        return d_rows, tuple(d_state), rest[len(state) :]


class _Sum:
    """The sum over chunks of one weight's gradients, in float32 at least: halves would lose what chunks add."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.total = torch.zeros_like(weight, dtype=dtype) if weight.requires_grad else None

    def add(self, gradient: Tensor | None) -> None:
        """Add one chunk's gradient."""
        if self.total is not None and gradient is not None:
            self.total += gradient

    def result(self) -> Tensor | None:
        """The sum in the weight's dtype; None where no gradient is wanted."""
        return None if self.total is None else self.total.to(self.weight.dtype)


def _allocate(run: ChunkedRun, like: Tensor, inputs: Tensor) -> Tensor:
    """Outputs to be filled chunk by chunk, with zeros where no chunk will write."""
    new = like.new_empty if run.layout.covers else like.new_zeros
    return new((*inputs.shape[:-1], run.spec.output_size))


def _run_rows(
    spec: StackSpec, chunk: Chunk, rows: Tensor, state: State, weights: Sequence[Tensor]
) -> tuple[Tensor, State]:
    sizes = chunk.batch_sizes
    if sizes is None or sizes[-1] != chunk.sequences:
        return run_fused(spec, rows, state, weights, batch_sizes=sizes)
    # No sequence ends in here: the packed rows are dense, for which there are faster kernels.
    outputs, final = run_fused(spec, rows.view(len(sizes), chunk.sequences, -1), state, weights)
    return outputs.reshape(rows.shape[0], -1), final


def _concatenated(states: Sequence[State]) -> State:
    """States of several layers or directions, one under the other."""
    return tuple(torch.cat(parts) for parts in zip(*states, strict=True))
