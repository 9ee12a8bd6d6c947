"""What the stock layer refuses, in Python or deep in C++, a lean layer refuses in the same words."""
# ruff: noqa: ANN401 - layers, states and results have as many forms as torch gives them

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import lowtide.nn
from lowtide.errors import LowtideError

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
Layer = Any
Call = Callable[[Layer], object]


def inputs(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape or (STEPS, BATCH, WIDTH)).numel()).view(
        shape or (STEPS, BATCH, WIDTH)
    )


def zeros(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(*(shape or (1, BATCH, HIDDEN)), device=device, dtype=dtype)


def states(layer: Layer, h: Tensor, c: Tensor | None = None) -> Any:
    """The states as the layer takes them; c like h where it is not given."""
    return (h, h if c is None else c) if isinstance(layer, torch.nn.LSTM) else h


def packed(*lengths: int, width: int = WIDTH) -> PackedSequence:
    rows = inputs(STEPS, len(lengths), width)
    return pack_padded_sequence(rows, list(lengths), enforce_sorted=False)


def packed_by_hand(rows: int, *batch_sizes: int) -> PackedSequence:
    return PackedSequence(inputs(rows, WIDTH), torch.tensor(batch_sizes, dtype=torch.int64))


def with_weight(name: str, change: Callable[[Tensor], Tensor]) -> Call:
    def run(layer: Layer) -> object:
        setattr(layer, name, torch.nn.Parameter(change(getattr(layer, name).detach())))
        return layer(inputs())

    return run


def without_weight(layer: Layer) -> object:
    layer.weight_hh_l0 = None
    return layer(inputs())


WRONG_INPUTS: dict[str, Call] = {
    "no dimension": lambda layer: layer(torch.tensor(1.0)),
    "one dimension": lambda layer: layer(inputs(WIDTH)),
    "four dimensions": lambda layer: layer(inputs(2, STEPS, BATCH, WIDTH)),
    "too wide": lambda layer: layer(inputs(STEPS, BATCH, WIDTH + 1)),
    "one sequence too wide": lambda layer: layer(inputs(STEPS, WIDTH + 1)),
    "no steps": lambda layer: layer(inputs(BATCH, 0, WIDTH) if layer.batch_first else inputs(0, BATCH, WIDTH)),
    "one sequence of no steps": lambda layer: layer(inputs(0, WIDTH)),
    "float64": lambda layer: layer(inputs().double()),
    "float16": lambda layer: layer(inputs().half()),
    "bfloat16": lambda layer: layer(inputs().bfloat16()),
    "integers": lambda layer: layer(inputs().long()),
    "booleans": lambda layer: layer(inputs().bool()),
    "complex": lambda layer: layer(inputs() + 0j),
    "another device": lambda layer: layer(inputs().to("meta")),
    "sparse": lambda layer: layer(inputs().to_sparse()),
    "None": lambda layer: layer(None),
    "a list": lambda layer: layer([[1.0]]),
    "an array": lambda layer: layer(inputs().numpy()),
    "nothing": lambda layer: layer(),
    "too much": lambda layer: layer(inputs(), None, None),
    "an unknown name": lambda layer: layer(inputs(), wrong=1),
}

WRONG_STATES: dict[str, Call] = {
    "float64": lambda layer: layer(inputs(), states(layer, zeros().double())),
    "another device": lambda layer: layer(inputs(), states(layer, zeros(device="meta"))),
    "two dimensions": lambda layer: layer(inputs(), states(layer, zeros(1, HIDDEN))),
    "three dimensions for one sequence": lambda layer: layer(inputs(STEPS, WIDTH), states(layer, zeros())),
    "another batch size": lambda layer: layer(inputs(), states(layer, zeros(1, BATCH + 1, HIDDEN))),
    "too many layers": lambda layer: layer(inputs(), states(layer, zeros(2, BATCH, HIDDEN))),
    "too wide": lambda layer: layer(inputs(), states(layer, zeros(1, BATCH, HIDDEN + 1))),
    "the other kind": lambda layer: layer(inputs(), zeros() if isinstance(layer, torch.nn.LSTM) else (zeros(),)),
    "a tensor of two": lambda layer: layer(inputs(), zeros(2, 1, BATCH, HIDDEN)),
    "three": lambda layer: layer(inputs(), (zeros(), zeros(), zeros())),
    "one in a tuple": lambda layer: layer(inputs(), (zeros(),)),
    "two times None": lambda layer: layer(inputs(), (None, None)),
    "text": lambda layer: layer(inputs(), "zeros"),
}

WRONG_CELL_STATES: dict[str, Call] = {
    "too wide": lambda layer: layer(inputs(), (zeros(), zeros(1, BATCH, HIDDEN + 1))),
    "float64": lambda layer: layer(inputs(), (zeros(), zeros().double())),
    "another device": lambda layer: layer(inputs(), (zeros(), zeros(device="meta"))),
    "None": lambda layer: layer(inputs(), (zeros(), None)),
}

WRONG_PACKED: dict[str, Call] = {
    "too wide": lambda layer: layer(packed(5, 3, 2, width=WIDTH + 1)),
    "float64": lambda layer: layer(packed(5, 3, 2).double()),
    "complex": lambda layer: layer(packed(5, 3, 2).to(torch.complex64)),
    "states of another batch size": lambda layer: layer(
        packed_by_hand(6, 3, 2, 1), states(layer, zeros(1, BATCH + 1, HIDDEN))
    ),
    "states of too few sequences": lambda layer: layer(packed(3, 5, 2), states(layer, zeros(1, BATCH - 1, HIDDEN))),
    "states of two dimensions": lambda layer: layer(packed(5, 3, 2), states(layer, zeros(1, HIDDEN))),
    "states of float64": lambda layer: layer(packed(5, 3, 2), states(layer, zeros().double())),
    "too few rows": lambda layer: layer(packed_by_hand(5, 3, 2, 1)),
    "growing batch sizes": lambda layer: layer(packed_by_hand(5, 2, 3)),
    "no steps": lambda layer: layer(packed_by_hand(0)),
    "rows of two dimensions": lambda layer: layer(PackedSequence(inputs(6, 1, WIDTH), torch.tensor([3, 2, 1]))),
    "batch sizes of int32": lambda layer: layer(PackedSequence(inputs(6, WIDTH), torch.tensor([3, 2, 1]).int())),
}

WRONG_WEIGHTS: dict[str, Call] = {
    "first of float64": with_weight("weight_ih_l0", Tensor.double),
    "second of float64": with_weight("weight_hh_l0", Tensor.double),
    "another device": with_weight("weight_hh_l0", lambda weight: weight.to("meta")),
    "none": without_weight,
}

MISSHAPEN_WEIGHTS: dict[str, Call] = {
    "too wide": with_weight("weight_ih_l0", lambda weight: weight.repeat(1, 2)),
    "too high": with_weight("weight_hh_l0", lambda weight: weight.repeat(2, 1)),
    "bias too long": with_weight("bias_hh_l0", lambda bias: bias.repeat(2)),
}

ODD_BUT_TAKEN: dict[str, Call] = {
    "no sequences": lambda layer: layer(inputs(STEPS, 0, WIDTH)),
    "states for more sequences than are packed": lambda layer: layer(
        packed(3, 5, 2), states(layer, zeros(1, BATCH + 1, HIDDEN))
    ),
    "more rows than are packed": lambda layer: layer(packed_by_hand(7, 3, 2, 1)),
    "packed steps without sequences": lambda layer: layer(packed_by_hand(3, 3, 0)),
    "complex numbers": lambda layer: layer.to(torch.complex64)(inputs() + 0j),
    "a list of states": lambda layer: layer(
        inputs(), [zeros(), zeros()] if isinstance(layer, torch.nn.LSTM) else zeros()
    ),
    "bfloat16": lambda layer: layer.bfloat16()(inputs().bfloat16()),
    "every tensor without storage": lambda layer: layer.to("meta")(inputs().to("meta")),
}


def named(*tables: dict[str, Call]) -> list[Any]:
    return [pytest.param(call, id=name) for table in tables for name, call in table.items()]


def both(cell: str, *, batch_first: bool) -> tuple[Layer, Layer]:
    stock = getattr(torch.nn, cell)(WIDTH, HIDDEN, batch_first=batch_first)
    lean = getattr(lowtide.nn, cell)(WIDTH, HIDDEN, batch_first=batch_first)
    lean.load_state_dict(stock.state_dict())
    return stock, lean


def refusal(layer: Layer, call: Call) -> tuple[type[Exception], str]:
    try:
        call(layer)
    except Exception as error:  # noqa: BLE001 - any error that torch may raise is what is compared
        return type(error), str(error)
    pytest.fail(f"{type(layer)} accepted it")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("call", named(WRONG_INPUTS, WRONG_STATES, WRONG_PACKED, WRONG_WEIGHTS))
def test_refused_as_torch_refuses_it(call: Call, cell: str, *, batch_first: bool) -> None:
    stock, lean = both(cell, batch_first=batch_first)
    assert refusal(lean, call) == refusal(stock, call)


@pytest.mark.parametrize("call", named(WRONG_CELL_STATES))
def test_cell_states_are_refused_as_torch_refuses_them(call: Call) -> None:
    stock, lean = both("LSTM", batch_first=False)
    assert refusal(lean, call) == refusal(stock, call)


@pytest.mark.parametrize("cell", ["GRU", "RNN"])
@pytest.mark.parametrize("call", named(MISSHAPEN_WEIGHTS))
def test_misshapen_weights_are_refused_as_torch_refuses_them(call: Call, cell: str) -> None:
    stock, lean = both(cell, batch_first=False)
    assert refusal(lean, call) == refusal(stock, call)


@pytest.mark.parametrize("call", named(MISSHAPEN_WEIGHTS))
def test_misshapen_weights_of_an_lstm_are_refused_where_torch_would_read_past_their_end(call: Call) -> None:
    _, lean = both("LSTM", batch_first=False)
    with pytest.raises(LowtideError, match=r"weight_ih_l0|weight_hh_l0|bias_hh_l0"):
        call(lean)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("call", named(ODD_BUT_TAKEN))
def test_taken_as_torch_takes_it(call: Call, cell: str) -> None:
    stock, lean = both(cell, batch_first=False)
    torch.testing.assert_close(call(lean), call(stock), check_device=True, check_dtype=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_size": 0, "hidden_size": 3},
        {"input_size": 3, "hidden_size": 0},
        {"input_size": 3.0, "hidden_size": 3},
        {"input_size": 3, "hidden_size": 3, "num_layers": 0},
        {"input_size": 3, "hidden_size": 3, "dropout": 1.5},
        {"input_size": 3, "hidden_size": 3, "dropout": True},
        {"input_size": 3, "hidden_size": 3, "bias": 1},
        {"input_size": 3, "hidden_size": 3, "batch_first": 1},
        {"input_size": 3, "hidden_size": 3, "dtype": torch.int32},
    ],
)
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_refused_at_construction_as_torch_refuses_it(cell: str, arguments: dict[str, Any]) -> None:
    stock, lean = (refusal(kind, lambda make: make(**arguments)) for kind in both_classes(cell))
    assert lean == stock


def both_classes(cell: str) -> tuple[Any, Any]:
    return getattr(torch.nn, cell), getattr(lowtide.nn, cell)


@pytest.mark.parametrize("proj_size", [-1, 3, 4])
def test_wrong_projections_are_refused_as_torch_refuses_them(proj_size: int) -> None:
    stock, lean = (refusal(kind, lambda make: make(3, 3, proj_size=proj_size)) for kind in both_classes("LSTM"))
    assert lean == stock


def test_an_unknown_nonlinearity_is_refused_as_torch_refuses_it() -> None:
    stock, lean = (refusal(kind, lambda make: make(3, 3, 1, "sigmoid")) for kind in both_classes("RNN"))
    assert lean == stock
