"""A lean layer stands in for torch's: the same parameters, state_dict, copies, hooks and dropout."""
# ruff: noqa: ANN401 - layers, states and results have as many forms as torch gives them

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

import lowtide.nn
from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, LAYOUTS, Arguments, Case, Layer, call, differentiate, lean_layer, stock_layer

NAMES = ("LSTM", "GRU", "RNN")
EVERY_WEIGHT = dataclasses.replace(Case(), bidirectional=True, proj_size=3)


def results_of(layer: Layer, case: Case) -> dict[str, Tensor]:
    return call(layer, case, Arguments.draw(case))


def assert_alike(layer: Layer, other: Layer, case: Case) -> None:
    torch.testing.assert_close(results_of(layer, case), results_of(other, case))


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_draws_the_weights_of_stock(name: str) -> None:
    layers = []
    for package in (torch.nn, lowtide.nn):
        torch.manual_seed(0)
        layers.append(getattr(package, name)(3, 4, 2, bidirectional=True))
    for (stock_name, stock), (lean_name, lean) in zip(*(layer.named_parameters() for layer in layers), strict=True):
        assert lean_name == stock_name
        assert torch.equal(lean, stock)


def test_arguments_by_position_mean_what_they_mean_to_torch() -> None:
    for name, arguments in {
        "LSTM": (3, 4, 2, False, True, 0.5, True, 2),
        "GRU": (3, 4, 2, False, True, 0.5, True),
        "RNN": (3, 4, 2, "relu", False, True, 0.5, True),
    }.items():
        stock, lean = getattr(torch.nn, name)(*arguments), getattr(lowtide.nn, name)(*arguments)
        assert lean.extra_repr() == f"{stock.extra_repr()}, keep='outputs'"
        assert lean.mode == stock.mode
        lean.load_state_dict(stock.state_dict())


@pytest.mark.parametrize("case", [EVERY_WEIGHT, *(Case(cell=cell, bias=False) for cell in CELLS)])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_state_dicts_go_both_ways(case: Case) -> None:
    lean, stock = lean_layer(case), stock_layer(dataclasses.replace(case, seed=9))
    assert list(lean.state_dict()) == list(stock.state_dict())
    stock.load_state_dict(lean.state_dict())
    assert_alike(lean, stock, case)
    other = lean_layer(dataclasses.replace(case, seed=10))
    other.load_state_dict(stock.state_dict())
    assert_alike(other, stock, case)


def saved_and_loaded(layer: Layer) -> Any:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def saved_and_loaded_weights_only(layer: Layer) -> Any:
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(layer)
    other.reset_parameters()
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


def pickled(layer: Layer) -> Any:
    return pickle.loads(pickle.dumps(layer))  # noqa: S301 - made here


@pytest.mark.parametrize("again", [copy.deepcopy, pickled, saved_and_loaded, saved_and_loaded_weights_only])
@pytest.mark.parametrize("cell", CELLS)
def test_copies_are_equal_and_independent(cell: str, again: Any) -> None:
    case = Case(cell=cell, keep="gates", chunk_steps=3, state_steps=6)
    layer = lean_layer(case)
    before = results_of(layer, case)
    other = again(layer)
    assert type(other) is type(layer)
    assert (other.keep, other.chunk_steps, other.state_steps) == ("gates", 3, 6)
    torch.testing.assert_close(results_of(other, case), before)
    with torch.no_grad():
        other.weight_hh_l0.zero_()
    torch.testing.assert_close(results_of(layer, case), before)
    assert not torch.equal(results_of(other, case)["outputs"], before["outputs"])


def test_a_layer_pickled_before_it_had_options_works() -> None:
    case = Case()
    layer = lean_layer(case)
    for name in ("keep", "chunk_steps", "state_steps"):
        del layer.__dict__[name]
    assert_alike(pickled(layer), layer, case)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_replaced_weights_are_used(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep)
    lean, stock = lean_layer(case), stock_layer(case)
    before = results_of(lean, case)
    replacement = torch.full_like(lean.weight_hh_l0, 0.1)
    for layer in (lean, stock):
        layer.weight_hh_l0 = torch.nn.Parameter(replacement.clone())
    assert_alike(lean, stock, case)
    assert not torch.equal(results_of(lean, case)["outputs"], before["outputs"])
    for layer in (lean, stock):
        layer.float().double()
        with torch.no_grad():
            layer.weight_ih_l0.mul_(2)
    assert_alike(lean, stock, case)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_tied_weights_get_the_sum_of_their_gradients(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, input_size=7, hidden_size=7, keep=keep)
    gradients = []
    for layer in (lean_layer(case), stock_layer(case)):
        layer.weight_ih_l1 = layer.weight_hh_l0 = layer.weight_ih_l0
        differentiate(layer, case, Arguments.draw(case))
        gradients.append({name: weight.grad for name, weight in layer.named_parameters()})
    torch.testing.assert_close(*gradients)


def test_a_layer_called_twice_in_one_graph_gets_both_gradients() -> None:
    case = Case(input_size=7, hidden_size=7)
    gradients = []
    for layer in (lean_layer(case), stock_layer(case)):
        arguments = Arguments.draw(case)
        first, states = layer(arguments.inputs)
        second, _ = layer(first, states)
        second.square().sum().backward()
        gradients.append([arguments.inputs.grad, *(weight.grad for weight in layer.parameters())])
    torch.testing.assert_close(*gradients)


def test_functional_call_uses_the_weights_it_is_given() -> None:
    case = Case()
    lean, stock = lean_layer(case), stock_layer(dataclasses.replace(case, seed=5))
    inputs = Arguments.draw(case).inputs
    outputs, _ = torch.func.functional_call(lean, dict(stock.named_parameters()), (inputs,))
    torch.testing.assert_close(outputs, stock(inputs)[0])


@pytest.mark.parametrize("cell", CELLS)
def test_hooks_see_what_they_see_on_stock(cell: str) -> None:
    case = Case(cell=cell)
    seen: list[list[Any]] = []
    for layer in (lean_layer(case), stock_layer(case)):
        notes: list[Any] = []
        layer.register_forward_pre_hook(lambda _, inputs, notes=notes: notes.append(inputs))
        layer.register_forward_hook(lambda _, __, results, notes=notes: notes.append(results))
        layer.weight_hh_l0.register_hook(lambda gradient, notes=notes: notes.append(gradient))
        layer.register_full_backward_hook(lambda _, inputs, outputs, notes=notes: notes.append((inputs, outputs)))
        layer(Arguments.draw(case).inputs)[0].sum().backward()
        seen.append(notes)
    assert len(seen[0]) == 4
    torch.testing.assert_close(*seen)


@pytest.mark.parametrize("layout", ["dense", "packed, unsorted"])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_dropout_drops_what_stock_drops_under_one_seed(cell: str, keep: Keep, layout: str) -> None:
    for bidirectional, batch_first in itertools.product([False, True], repeat=2):
        case = Case(
            cell=cell,
            num_layers=3,
            keep=keep,
            layout=layout,
            bidirectional=bidirectional,
            batch_first=batch_first,
            chunk_steps=2,
            options={"dropout": 0.4},
        )
        results, states_after = [], []
        for layer in (lean_layer(case), stock_layer(case)):
            arguments = Arguments.draw(case)
            torch.manual_seed(3)
            results.append(differentiate(layer, case, arguments))
            states_after.append(torch.get_rng_state())
        torch.testing.assert_close(*results)
        assert torch.equal(*states_after)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_dropout_at_its_ends_is_that_of_stock(dropout: float, keep: Keep) -> None:
    case = Case(keep=keep, options={"dropout": dropout})
    torch.testing.assert_close(*(differentiate(layer, case, Arguments.draw(case)) for layer in pair(case)))


def pair(case: Case) -> tuple[Layer, Layer]:
    return lean_layer(case), stock_layer(case)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_evaluation_drops_nothing_and_draws_nothing(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep, options={"dropout": 0.4})
    before = torch.get_rng_state()
    lean, stock = (layer.eval() for layer in pair(case))
    torch.set_rng_state(before)
    assert_alike(lean, stock, case)
    assert torch.equal(torch.get_rng_state(), before)
    lean.train()
    assert not torch.equal(results_of(lean, case)["outputs"], results_of(stock, case)["outputs"])


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_second_derivatives_are_refused_with_the_name_of_the_stock_layer(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    outputs = call(layer, case, arguments)["outputs"]
    (gradient,) = torch.autograd.grad(outputs.square().sum(), arguments.inputs, create_graph=True)
    with pytest.raises(LowtideError, match=f"torch.nn.{cell.partition('_')[0]}"):
        torch.autograd.backward(gradient.sum())


def test_backward_twice_through_a_kept_graph_gives_the_same_twice() -> None:
    for keep in KEEPS:
        case = Case(keep=keep, chunk_steps=2)
        layer, arguments = lean_layer(case), Arguments.draw(case)
        loss = call(layer, case, arguments)["outputs"].square().sum()
        first, second = (torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True) for _ in range(2))
        torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("keep", KEEPS)
def test_inputs_changed_in_place_before_backward_are_refused(keep: Keep) -> None:
    case = Case(keep=keep)
    layer = lean_layer(case)
    inputs = Arguments.draw(case).inputs.detach().clone()
    loss = layer(inputs)[0].sum()
    inputs.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_repr_says_what_is_kept_and_when_that_is_the_same_as_something_else() -> None:
    assert repr(lowtide.nn.GRU(3, 4)) == "GRU(3, 4, keep='outputs')"
    layer = lowtide.nn.LSTM(3, 4, 2, keep="boundaries", chunk_steps=8, state_steps=16)
    assert repr(layer) == "LSTM(3, 4, num_layers=2, keep='boundaries', chunk_steps=8, state_steps=16)"
    single = lowtide.nn.RNN(3, 4, keep="boundaries")
    assert repr(single) == "RNN(3, 4, keep='boundaries' (equals 'outputs': single layer))"
    both_ways = lowtide.nn.GRU(3, 4, 2, bidirectional=True, keep="boundaries")
    assert "keep='boundaries' (equals 'outputs': bidirectional)" in repr(both_ways)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep": "everything"}, "keep='everything'"),
        ({"keep": None}, "keep=None"),
        ({"chunk_steps": -1}, "chunk_steps=-1"),
        ({"chunk_steps": 2.0}, "chunk_steps=2.0"),
        ({"state_steps": True}, "state_steps=True"),
        ({"chunk_steps": 8, "state_steps": 4}, "state_steps=4 is smaller than chunk_steps=8"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        getattr(lowtide.nn, name)(3, 4, **options)


def test_a_keep_mode_mistyped_later_is_refused_at_the_next_call() -> None:
    layer: Any = lowtide.nn.LSTM(3, 4)
    layer.keep = "output"
    with pytest.raises(LowtideError, match="keep='output'"):
        layer(torch.ones(2, 1, 3))


def test_flatten_parameters_is_harmless() -> None:
    case = Case()
    layer = lean_layer(case)
    before = results_of(layer, case)
    layer.flatten_parameters()
    torch.testing.assert_close(results_of(layer, case), before, rtol=0, atol=0)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_runs_without_lowtide(cell: str) -> None:
    case = Case(cell=cell, options={"dropout": 0.5})
    layer = lean_layer(case).eval()
    inputs = Arguments.draw(case).inputs.detach()
    traced = torch.jit.trace(layer, (inputs,))  # type: ignore[no-untyped-call]
    operators = {node.kind() for node in traced.inlined_graph.nodes()}
    assert {"LSTM": "aten::lstm", "GRU": "aten::gru", "RNN": f"aten::{cell.lower()}"}[cell[:4].rstrip("_")] in operators
    assert not any(kind.startswith("lowtide") or kind == "prim::PythonOp" for kind in operators)
    torch.testing.assert_close(traced(inputs[:4])[0], layer(inputs[:4])[0])
    with pytest.raises(LowtideError, match=r"torch\.jit\.trace"):
        torch.jit.trace(lambda x: layer(x, lengths=[9, 4, 7]), (inputs,))  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script.*")
def test_scripting_is_refused_with_the_way_out() -> None:
    model = torch.nn.Sequential(lowtide.nn.LSTM(3, 4))
    with pytest.raises(LowtideError, match=r"lowtide\.stock"):
        torch.jit.script(model)
    scripted = torch.jit.script(lowtide.nn.stock(model))
    assert scripted(torch.ones(2, 1, 3))[0].shape == (2, 1, 4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cell", CELLS)
def test_no_call_in_order_runs_the_loop_of_the_stock_layer(
    cell: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("the stock forward ran")

    for stock in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        monkeypatch.setattr(stock, "forward", refuse)
    for with_states, bidirectional, autocast in itertools.product([False, True], repeat=3):
        case = Case(cell=cell, layout=layout, lengths=(9, 7, 4), with_states=with_states, bidirectional=bidirectional)
        arguments = Arguments.draw(case, torch.float32)
        layer = lean_layer(case, torch.float32)
        parametrize.register_parametrization(layer, "weight_hh_l0", torch.nn.Identity())
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            results = call(layer, case, arguments)
        assert all(result.isfinite().all() for result in results.values())
