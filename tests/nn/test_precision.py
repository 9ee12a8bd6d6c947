"""Under autocast a lean layer returns the dtypes that torch's returns, and computes at least as exactly."""

from __future__ import annotations

import itertools

import pytest
import torch

from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import (
    Arguments,
    Case,
    Layer,
    Results,
    call,
    differentiate,
    differentiate_stock,
    error,
    lean_layer,
    stock_layer,
)

KINDS = [("LSTM", 0), ("LSTM", 3), ("GRU", 0), ("RNN_TANH", 0), ("RNN_RELU", 0)]
SORTED = (9, 7, 4)

quiet = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def under_autocast(layer: Layer, case: Case, arguments: Arguments, dtype: torch.dtype = torch.bfloat16) -> Results:
    with torch.autocast("cpu", dtype=dtype):
        return call(layer, case, arguments)


def dtypes(results: Results) -> dict[str, torch.dtype]:
    return {name: result.dtype for name, result in results.items()}


@quiet
@pytest.mark.parametrize("layout", ["dense", "one sequence", "packed, sorted"])
@pytest.mark.parametrize(("cell", "proj_size"), KINDS)
def test_dtypes_under_autocast_are_those_of_stock(cell: str, proj_size: int, layout: str) -> None:
    kinds = [torch.float32, torch.bfloat16]
    for weights, inputs, states in itertools.product(kinds, kinds, [None, *kinds]):
        case = Case(cell=cell, proj_size=proj_size, layout=layout, lengths=SORTED, with_states=states is not None)
        drawn = Arguments.draw(case)
        arguments = Arguments(drawn.inputs.to(inputs), tuple(state.to(states) for state in drawn.states))
        lean = under_autocast(lean_layer(case, weights), case, arguments)
        stock = under_autocast(stock_layer(case, weights), case, arguments)
        assert dtypes(lean) == dtypes(stock), (weights, inputs, states)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(("cell", "proj_size"), KINDS)
@quiet
def test_results_and_gradients_under_bfloat16_autocast_are_as_exact_as_stock(
    cell: str, proj_size: int, keep: Keep
) -> None:
    case = Case(cell=cell, proj_size=proj_size, keep=keep)
    exact = differentiate_stock(case)
    errors = []
    for layer in (lean_layer(case, torch.float32), stock_layer(case, torch.float32)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = differentiate(layer, case, Arguments.draw(case, torch.float32))
        errors.append({name: error(results[name], exact[name]) for name in exact})
    for name, lean_error in errors[0].items():
        rounding = 2**-8 * float(exact[name].abs().max())
        assert lean_error <= max(2 * errors[1][name], rounding), name


@quiet
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(("cell", "proj_size"), KINDS)
def test_under_autocast_everything_is_computed_in_float32_and_rounded_once(
    cell: str, proj_size: int, keep: Keep
) -> None:
    case = Case(cell=cell, proj_size=proj_size, keep=keep)
    layer, arguments = lean_layer(case, torch.float32), Arguments.draw(case, torch.float32)
    rounded = under_autocast(layer, case, arguments)
    plain = call(layer, case, arguments)
    for name, result in rounded.items():
        assert torch.equal(result, plain[name].to(result.dtype)), name


def test_gradients_keep_the_dtypes_of_their_leaves() -> None:
    case = Case()
    layer, arguments = lean_layer(case, torch.float32), Arguments.draw(case, torch.float32)
    torch.autograd.backward(under_autocast(layer, case, arguments)["outputs"].sum())
    assert {leaf.grad.dtype for leaf in (arguments.inputs, *layer.parameters()) if leaf.grad is not None} == {
        torch.float32
    }


def test_float64_stays_float64_under_autocast() -> None:
    case = Case(with_states=False)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    torch.testing.assert_close(under_autocast(layer, case, arguments), call(layer, case, arguments), rtol=0, atol=0)


def test_autocast_of_another_device_changes_nothing() -> None:
    case = Case()
    layer, arguments = lean_layer(case, torch.float32), Arguments.draw(case, torch.float32)
    expected = call(layer, case, arguments)
    with torch.autocast("xpu", dtype=torch.bfloat16):
        results = call(layer, case, arguments)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN_TANH"])
@pytest.mark.parametrize("inputs", [torch.float64, torch.int64])
def test_mixtures_that_stock_refuses_under_autocast_are_refused_alike(cell: str, inputs: torch.dtype) -> None:
    case = Case(cell=cell, with_states=False)
    arguments = Arguments(Arguments.draw(case).inputs.detach().to(inputs), ())
    said = []
    for layer in (lean_layer(case, torch.float32), stock_layer(case, torch.float32)):
        with pytest.raises(RuntimeError) as refusal:
            under_autocast(layer, case, arguments)
        said.append(str(refusal.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_layers_give_low_precision_results(dtype: torch.dtype, keep: Keep) -> None:
    case = Case(cell="GRU", keep=keep)
    results = differentiate(lean_layer(case, dtype), case, Arguments.draw(case, dtype))
    exact = differentiate_stock(case)
    for name, reference in exact.items():
        assert results[name].dtype == dtype
        torch.testing.assert_close(results[name].double(), reference, rtol=0.1, atol=0.1)
