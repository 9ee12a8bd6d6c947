"""Drawn cases for the tests of `lowtide.ops`: a stack, its tensors, and what the stock layer makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lowtide.ops.spec import GATES, KEEPS, Cell, Keep, StackSpec

Result = tuple[Tensor, Tensor, Tensor | None]
Run = Callable[..., Result]

LAYOUTS = ["dense", "batch_first", "packed", "padded"]

STOCK: dict[Cell, Callable[..., torch.nn.RNNBase]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": partial(torch.nn.RNN, nonlinearity="tanh"),
    "rnn_relu": partial(torch.nn.RNN, nonlinearity="relu"),
}


@dataclass(frozen=True)
class Case:
    """A stack and the shape of what goes in. Tensors follow from the seed."""

    spec: StackSpec
    layout: str
    """dense, batch_first (a transposed view), packed or padded."""
    lengths: tuple[int, ...]
    """All the same but for packed and padded; sorted for packed."""
    with_state: bool
    seed: int

    @property
    def steps(self) -> int:
        return max(self.lengths)

    def ragged(self) -> Tensor | None:
        """The lengths for a padded case."""
        return torch.tensor(self.lengths) if self.layout == "padded" else None


@dataclass(frozen=True)
class Tensors:
    """What a stack is called with, all of it asking for gradients."""

    inputs: Tensor
    batch_sizes: Tensor | None
    h0: Tensor | None
    c0: Tensor | None
    weights: list[Tensor]

    def leaves(self) -> list[Tensor]:
        return [leaf for leaf in (self.inputs, self.h0, self.c0, *self.weights) if leaf is not None]


@st.composite
def cases(draw: st.DrawFn, *, layouts: Sequence[str], dropout: bool = True, empty: bool = False) -> Case:
    """Small stacks of every kind; `empty` lets padded sequences have no steps."""
    cell = draw(st.sampled_from(sorted(GATES)))
    hidden = draw(st.integers(2, 9))
    layers = draw(st.integers(1, 3))
    spec = StackSpec(
        cell=cell,
        input_size=draw(st.integers(1, 6)),
        hidden_size=hidden,
        num_layers=layers,
        bias=draw(st.booleans()),
        bidirectional=draw(st.booleans()),
        proj_size=draw(st.integers(0, hidden - 1)) if cell == "lstm" else 0,
        dropout=draw(st.sampled_from([0.0, 0.3, 0.8])) if dropout and layers > 1 else 0.0,
        keep=draw(st.sampled_from(KEEPS)),
        chunk_steps=draw(st.integers(0, 13)),
    )
    layout = draw(st.sampled_from(layouts))
    sequences = draw(st.integers(1, 6))
    steps = draw(st.integers(1, 12))
    lengths = [steps] * sequences
    if layout in ("packed", "padded"):
        lengths = draw(st.lists(st.integers(0 if empty else 1, steps), min_size=1, max_size=6))
    if layout == "packed":
        lengths = sorted(lengths, reverse=True)
    return Case(spec, layout, tuple(lengths), draw(st.booleans()), draw(st.integers(0, 1000)))


def tensors_of(case: Case, dtype: torch.dtype = torch.float64) -> Tensors:
    """The tensors that follow from the case's seed."""
    generator = torch.Generator().manual_seed(case.seed)

    def drawn(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)

    spec, sequences = case.spec, len(case.lengths)
    inputs = drawn(max(case.steps, 1), sequences, spec.input_size)
    batch_sizes = None
    if case.layout == "batch_first":
        inputs = inputs.transpose(0, 1).contiguous().transpose(0, 1)
    if case.layout == "packed":
        inputs, batch_sizes, _, _ = pack_padded_sequence(inputs, torch.tensor(case.lengths))
    rows = spec.num_layers * spec.directions
    h0 = drawn(rows, sequences, spec.state_size) if case.with_state else None
    c0 = drawn(rows, sequences, spec.hidden_size) if case.with_state and spec.has_cell_state else None
    weights = [drawn(*weight.shape, scale=0.5) for weight in stock_layer(spec).parameters()]
    for leaf in (inputs, h0, c0, *weights):
        if leaf is not None:
            leaf.requires_grad_()
    return Tensors(inputs, batch_sizes, h0, c0, weights)


def stock_layer(spec: StackSpec, *, batch_first: bool = False, weights: Sequence[Tensor] = ()) -> torch.nn.RNNBase:
    """The layer of torch.nn that a spec describes."""
    make = partial(STOCK[spec.cell], proj_size=spec.proj_size) if spec.proj_size else STOCK[spec.cell]
    layer = make(
        spec.input_size,
        spec.hidden_size,
        num_layers=spec.num_layers,
        bias=spec.bias,
        batch_first=batch_first,
        dropout=spec.dropout,
        bidirectional=spec.bidirectional,
    )
    layer.to(weights[0].dtype if weights else torch.float64)
    with torch.no_grad():
        for parameter, weight in zip(layer.parameters(), weights, strict=False):
            parameter.copy_(weight)
    return layer


def run_case(run: Run, case: Case, tensors: Tensors) -> Result:
    """Call a path of `ops` under the case's seed."""
    torch.manual_seed(case.seed)
    return run(
        case.spec,
        tensors.inputs,
        tensors.h0,
        tensors.c0,
        tensors.weights,
        batch_sizes=tensors.batch_sizes,
        lengths=case.ragged(),
    )


def run_stock(case: Case, tensors: Tensors) -> tuple[Result, list[Tensor]]:
    """The stock layer's results on the same tensors, and the leaves to differentiate in the order of `leaves()`."""
    batch_first = case.layout == "batch_first"
    layer = stock_layer(case.spec, batch_first=batch_first, weights=tensors.weights)
    inputs: Tensor | PackedSequence = tensors.inputs
    if batch_first:
        inputs = tensors.inputs.transpose(0, 1)
    if case.layout == "packed":
        inputs = PackedSequence(tensors.inputs, tensors.batch_sizes)
    if case.layout == "padded":
        inputs = pack_padded_sequence(tensors.inputs, torch.tensor(case.lengths), enforce_sorted=False)
    state = (tensors.h0, tensors.c0) if case.spec.has_cell_state else tensors.h0
    torch.manual_seed(case.seed)
    outputs, final = layer(inputs, state if case.with_state else None)
    h, c = final if case.spec.has_cell_state else (final, None)
    if batch_first:
        outputs = outputs.transpose(0, 1)
    if isinstance(outputs, PackedSequence):
        outputs = outputs.data if case.layout == "packed" else pad_packed_sequence(outputs, total_length=case.steps)[0]
    given = [leaf for leaf in (tensors.inputs, tensors.h0, tensors.c0) if leaf is not None]
    return (outputs, h, c), [*given, *layer.parameters()]


def present(result: Iterable[Tensor | None]) -> list[Tensor]:
    """What is not None."""
    return [tensor for tensor in result if tensor is not None]


def gradients(result: Result, leaves: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """Gradients of all results, each weighted at random, for every leaf."""
    generator = torch.Generator().manual_seed(seed)
    results = present(result)
    weights = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in results]
    return list(torch.autograd.grad(results, leaves, weights, retain_graph=True))


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-11) -> None:
    """Equal up to `tolerance` of each tensor's largest entry (and of 1 where that is smaller)."""
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == other.shape, number
        assert one.dtype == other.dtype, number
        error = (one - other).abs().max().item() if one.numel() else 0.0
        assert error <= tolerance * max(1.0, other.abs().max().item() if one.numel() else 0.0), (number, error)


def with_keep(case: Case, keep: Keep) -> Case:
    """The case under another keep mode."""
    return replace(case, spec=replace(case.spec, keep=keep))


def dense(spec: StackSpec, steps: int = 8, sequences: int = 2, seed: int = 0) -> tuple[Case, Tensors]:
    """A dense case of this stack, with states."""
    case = Case(spec, "dense", (steps,) * sequences, with_state=True, seed=seed)
    return case, tensors_of(case)
