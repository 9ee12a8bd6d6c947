"""Cases that the tests of the layers share: how a layer is called, on what, and what comes out, gradients included."""
# ruff: noqa: ANN401 - layers, states and results have as many forms as torch gives them

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import lowtide.nn
from lowtide.ops.spec import KEEPS, Keep

CELLS = ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")
LAYOUTS = ("dense", "one sequence", "packed, sorted", "packed, unsorted", "lengths")

Layer = Any
"""An LSTM, GRU or RNN; torch's annotations would have every weight be a tensor or a module."""
Results = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One layer and one call of it."""

    cell: str = "LSTM"
    input_size: int = 5
    hidden_size: int = 7
    num_layers: int = 2
    bias: bool = True
    batch_first: bool = False
    bidirectional: bool = False
    proj_size: int = 0
    layout: str = "dense"
    steps: int = 9
    lengths: tuple[int, ...] = (9, 4, 7)
    """One for each sequence; a dense batch takes their number only."""
    with_states: bool = True
    keep: Keep = "outputs"
    chunk_steps: int = 0
    state_steps: int = 0
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """More arguments of the constructor."""

    @property
    def sequences(self) -> int:
        """The batch size."""
        return 1 if self.layout == "one sequence" else len(self.lengths)


def class_arguments(case: Case) -> tuple[str, dict[str, Any]]:
    """Name the class and its arguments, those beyond torch's left out."""
    arguments = {name: getattr(case, name) for name in ("num_layers", "bias", "batch_first", "bidirectional")}
    arguments |= case.options
    if case.proj_size:
        arguments["proj_size"] = case.proj_size
    if case.cell.startswith("RNN"):
        arguments["nonlinearity"] = case.cell.removeprefix("RNN_").lower()
    return case.cell.partition("_")[0], arguments


def stock_layer(case: Case, dtype: torch.dtype = torch.float64) -> Layer:
    """Make torch's layer of the case; weights depend on the seed alone, not on `dtype`."""
    name, arguments = class_arguments(case)
    torch.manual_seed(case.seed)
    layer: Layer = getattr(torch.nn, name)(case.input_size, case.hidden_size, **arguments, dtype=torch.float64)
    # Values that float32 holds exactly, so that every dtype sees the same layer.
    return layer.float().to(dtype)


def lean_layer(case: Case, dtype: torch.dtype = torch.float64) -> Layer:
    """Make the lean layer of the case with the weights of the stock one."""
    name, arguments = class_arguments(case)
    layer: Layer = getattr(lowtide.nn, name)(
        case.input_size,
        case.hidden_size,
        **arguments,
        dtype=dtype,
        keep=case.keep,
        chunk_steps=case.chunk_steps,
        state_steps=case.state_steps,
    )
    layer.load_state_dict(stock_layer(case, dtype).state_dict())
    return layer


@dataclass(frozen=True)
class Arguments:
    """Tensors for one call, in one dtype."""

    inputs: Tensor
    states: tuple[Tensor, ...]

    @classmethod
    def draw(cls, case: Case, dtype: torch.dtype = torch.float64) -> Arguments:
        """Draw values that float32 holds exactly; they depend on the seed alone."""
        generator = torch.Generator().manual_seed(case.seed + 1)
        shape = (case.sequences, case.steps) if case.batch_first else (case.steps, case.sequences)
        inputs = _draw(generator, *shape, case.input_size)
        rows = case.num_layers * (1 + case.bidirectional)
        states = [_draw(generator, rows, case.sequences, case.proj_size or case.hidden_size)]
        if case.cell == "LSTM":
            states.append(_draw(generator, rows, case.sequences, case.hidden_size))
        if case.layout == "one sequence":
            inputs, states = inputs.squeeze(0 if case.batch_first else 1), [state.squeeze(1) for state in states]
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (inputs, *states)]
        return cls(leaves[0], tuple(leaves[1:]) if case.with_states else ())

    @property
    def hx(self) -> Any:
        """The initial states as the layer takes them."""
        if not self.states:
            return None
        return self.states[0] if len(self.states) == 1 else self.states


def _draw(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def pack(case: Case, inputs: Tensor) -> PackedSequence:
    """Pack the padded inputs of a case, sorting or trusting that they are sorted."""
    return pack_padded_sequence(
        inputs, list(case.lengths), batch_first=case.batch_first, enforce_sorted=case.layout == "packed, sorted"
    )


def call(layer: Layer, case: Case, arguments: Arguments) -> Results:
    """Call a layer in the case's layout; a stock layer takes padded input through a PackedSequence."""
    if case.layout in {"dense", "one sequence"}:
        outputs, final = layer(arguments.inputs, arguments.hx)
    elif case.layout == "lengths" and isinstance(layer, lowtide.nn.LSTM | lowtide.nn.GRU | lowtide.nn.RNN):
        outputs, final = layer(arguments.inputs, arguments.hx, lengths=case.lengths)
    else:
        packed, final = layer(pack(case, arguments.inputs), arguments.hx)
        outputs = packed.data
        if case.layout == "lengths":
            outputs, _ = pad_packed_sequence(packed, batch_first=case.batch_first, total_length=case.steps)
    states = final if isinstance(final, tuple) else (final,)
    return {"outputs": outputs} | dict(zip(("h", "c"), states, strict=False))


def differentiate(layer: Layer, case: Case, arguments: Arguments) -> Results:
    """Call a layer and pull random gradients of all its results back to everything that asks for one."""
    results = call(layer, case, arguments)
    generator = torch.Generator().manual_seed(case.seed + 2)
    pulled = [_draw(generator, *result.shape).to(result) for result in results.values()]
    torch.autograd.backward(list(results.values()), pulled)
    leaves = {"inputs": arguments.inputs, "h0 c0": arguments.states} | dict(layer.named_parameters())
    for name, leaf in leaves.items():
        for part, tensor in enumerate(leaf if isinstance(leaf, tuple) else (leaf,)):
            if tensor.grad is not None:
                results[f"gradient of {name} ({part})"] = tensor.grad
    return {name: result.detach() for name, result in results.items()}


def differentiate_stock(case: Case, dtype: torch.dtype = torch.float64) -> Results:
    """Run the stock layer of a case, forward and backward."""
    return differentiate(stock_layer(case, dtype), case, Arguments.draw(case, dtype))


def differentiate_lean(case: Case, dtype: torch.dtype = torch.float64) -> Results:
    """Run the lean layer of a case, forward and backward."""
    return differentiate(lean_layer(case, dtype), case, Arguments.draw(case, dtype))


def error(result: Tensor, reference: Tensor) -> float:
    """The largest deviation of any entry."""
    return float((result.double() - reference).abs().max()) if reference.numel() else 0.0


def assert_as_exact(results: Results, stock: Results, exact: Results) -> None:
    """Each tensor is as near to `exact` as the stock layer's, up to a factor of two or 5e-6 of its largest entry."""
    assert results.keys() == exact.keys()
    for name, reference in exact.items():
        assert results[name].shape == reference.shape, name
        allowed = max(2 * error(stock[name], reference), 5e-6 * float(reference.abs().max()))
        assert error(results[name], reference) <= allowed, name


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    """Layers and calls of every kind, small."""
    cell = draw(st.sampled_from(CELLS))
    hidden_size = draw(st.sampled_from([2, 1, 3, 8, 16, 17, 33]))
    projected = cell == "LSTM" and hidden_size > 1 and draw(st.booleans())
    steps = draw(st.integers(1, 14))
    layout = draw(st.sampled_from(LAYOUTS))
    lengths = draw(st.lists(st.integers(1, steps), min_size=1, max_size=6))
    if layout == "packed, sorted":
        lengths.sort(reverse=True)
    # Without one sequence of full length, PackedSequence and padded batch differ in their number of steps.
    lengths[0] = steps
    chunk_steps = draw(st.integers(0, steps + 1))
    return Case(
        cell=cell,
        input_size=draw(st.sampled_from([2, 1, 3, 8, 16, 17])),
        hidden_size=hidden_size,
        num_layers=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        bidirectional=draw(st.booleans()),
        proj_size=draw(st.integers(1, hidden_size - 1)) if projected else 0,
        layout=layout,
        steps=steps,
        lengths=tuple(lengths),
        with_states=draw(st.booleans()),
        keep=draw(st.sampled_from(KEEPS)),
        chunk_steps=chunk_steps,
        state_steps=draw(st.sampled_from([0, chunk_steps, 2 * chunk_steps])),
        seed=draw(st.integers(0, 2**16)),
    )
