"""Lean layers give the numbers of double precision, up to rounding errors of the stock layer's size."""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import (
    CELLS,
    Arguments,
    Case,
    Results,
    assert_as_exact,
    call,
    differentiate_lean,
    differentiate_stock,
    drawn_cases,
    error,
    lean_layer,
    stock_layer,
)

if TYPE_CHECKING:
    from torch import Tensor

quiet = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@quiet
@settings(max_examples=300)
@given(case=drawn_cases())
def test_float32_outputs_states_and_gradients_are_as_exact_as_stock(case: Case) -> None:
    stock = differentiate_stock(case, torch.float32)
    assert_as_exact(differentiate_lean(case, torch.float32), stock, differentiate_stock(case))


@quiet
@settings(max_examples=200)
@given(case=drawn_cases())
def test_float64_outputs_states_and_gradients_equal_stock(case: Case) -> None:
    torch.testing.assert_close(differentiate_lean(case), differentiate_stock(case), rtol=1e-9, atol=1e-11)


def test_float32_error_is_in_the_median_at_most_half_again_that_of_stock() -> None:
    lean_errors: list[float] = []
    stock_errors: list[float] = []
    for case in _larger_cases():
        exact = differentiate_stock(case)
        lean_errors.append(_relative_error(differentiate_lean(case, torch.float32), exact))
        stock_errors.append(_relative_error(differentiate_stock(case, torch.float32), exact))
    assert statistics.median(lean_errors) <= 1.5 * statistics.median(stock_errors)


def _larger_cases() -> list[Case]:
    """Forty cases a cell, of sizes at which rounding errors add up."""
    chance = random.Random(0)  # noqa: S311 - no secret
    cases = []
    for cell, seed in itertools.product(CELLS, range(40)):
        steps = chance.randint(20, 60)
        case = Case(
            cell=cell,
            input_size=chance.randint(8, 64),
            hidden_size=chance.randint(16, 64),
            bidirectional=chance.random() < 0.5,
            steps=steps,
            lengths=(steps,) * chance.randint(2, 8),
            keep=chance.choice(KEEPS),
            seed=seed,
        )
        cases.append(case)
    return cases


def _relative_error(results: Results, exact: Results) -> float:
    return max(error(results[name], exact[name]) / float(exact[name].abs().max()) for name in exact)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_agree_with_finite_differences(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, input_size=2, hidden_size=3, steps=5, lengths=(5, 2), layout="lengths", keep=keep)
    layer = lean_layer(dataclasses.replace(case, chunk_steps=2))
    arguments = Arguments.draw(case)
    names = [name for name, _ in layer.named_parameters()]

    def compute(inputs: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        states, weights = rest[: len(arguments.states)], rest[len(arguments.states) :]
        hx = states[0] if len(states) == 1 else states
        values = dict(zip(names, weights, strict=True))
        outputs, final = torch.func.functional_call(layer, values, (inputs, hx), {"lengths": case.lengths})
        return outputs, *(final if isinstance(final, tuple) else (final,))

    leaves = (arguments.inputs, *arguments.states, *layer.parameters())
    assert torch.autograd.gradcheck(compute, leaves, fast_mode=cell == "RNN_RELU")


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=10)
@given(wanted=st.lists(st.booleans(), min_size=11, max_size=11))
def test_any_subset_of_leaves_may_ask_for_gradients(cell: str, keep: Keep, wanted: list[bool]) -> None:
    case = Case(cell=cell, keep=keep)
    gradients = []
    for layer in (lean_layer(case), stock_layer(case)):
        arguments = Arguments.draw(case)
        leaves = (arguments.inputs, *arguments.states, *layer.parameters())
        for leaf, wants in zip(leaves, wanted, strict=False):
            leaf.requires_grad_(wants)
        results = call(layer, case, arguments)
        if any(leaf.requires_grad for leaf in leaves):
            torch.autograd.backward([result.square().sum() for result in results.values() if result.requires_grad])
        assert all(result.requires_grad == any(leaf.requires_grad for leaf in leaves) for result in results.values())
        gradients.append([leaf.grad for leaf in leaves])
    for lean, stock in zip(*gradients, strict=True):
        assert (lean is None) == (stock is None)
        if lean is not None:
            torch.testing.assert_close(lean, stock)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_gradient_of_a_single_result_is_that_of_stock(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep, bidirectional=True)
    for name in ("outputs", "h", "c") if cell == "LSTM" else ("outputs", "h"):
        gradients = []
        for layer in (lean_layer(case), stock_layer(case)):
            arguments = Arguments.draw(case)
            torch.autograd.backward(call(layer, case, arguments)[name].sum())
            gradients.append([arguments.inputs.grad, *(weight.grad for weight in layer.parameters())])
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_inputs_may_have_any_strides(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    expected = call(layer, case, arguments)
    wide = torch.zeros(*arguments.inputs.shape[:2], 2 * case.input_size, dtype=torch.float64)
    wide[..., ::2] = arguments.inputs.detach()
    apart = Arguments(wide[..., ::2], arguments.states)
    torch.testing.assert_close(call(layer, case, apart), expected)


def test_without_gradients_outputs_are_the_same() -> None:
    case = Case()
    layer, arguments = lean_layer(case), Arguments.draw(case)
    expected = call(layer, case, arguments)
    with torch.no_grad():
        results = call(layer, case, arguments)
    with torch.inference_mode():
        inferred = call(layer, case, arguments)
    assert not any(result.requires_grad for result in results.values())
    torch.testing.assert_close(results, {name: value.detach() for name, value in expected.items()})
    torch.testing.assert_close(inferred, results)
