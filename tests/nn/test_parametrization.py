"""Weights that are computed when they are asked for, old style and new, before a layer is leaned and after."""
# ruff: noqa: D102 - a module's forward needs no docstring

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrizations, parametrize, weight_norm

import lowtide
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, Arguments, Case, Layer, Results, call, differentiate, stock_layer

NAMES = ("weight_hh_l0", "weight_ih_l1")


class Doubled(torch.nn.Module):
    """The simplest parametrization that changes a value."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


class Computed(torch.nn.Module):
    """A weight of two originals."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return weight - 1, torch.ones_like(weight)


def normalize(layer: Layer) -> None:
    for name in NAMES:
        parametrizations.weight_norm(layer, name)


def double(layer: Layer) -> None:
    for name in NAMES:
        parametrize.register_parametrization(layer, name, Doubled())


def split(layer: Layer) -> None:
    parametrize.register_parametrization(layer, NAMES[0], Computed())


def double_twice(layer: Layer) -> None:
    double(layer)
    double(layer)


def normalize_spectrally(layer: Layer) -> None:
    torch.manual_seed(0)
    parametrizations.spectral_norm(layer.eval(), NAMES[0])


def normalize_by_hook(layer: Layer) -> None:
    for name in NAMES:
        weight_norm(layer, name)


KINDS = [normalize, double, split, double_twice, normalize_spectrally]
old_style = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")

Parametrize = Callable[[Layer], None]


def results_of(layer: Layer, case: Case) -> Results:
    for parameter in layer.parameters():
        parameter.grad = None
    return differentiate(layer, case, Arguments.draw(case))


@old_style
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("first", [True, False], ids=["parametrized first", "leaned first"])
@pytest.mark.parametrize("kind", [*KINDS, normalize_by_hook])
@pytest.mark.parametrize("cell", CELLS)
def test_a_parametrized_layer_computes_as_stock(cell: str, kind: Parametrize, keep: Keep, *, first: bool) -> None:
    case = Case(cell=cell)
    stock, layer = stock_layer(case), stock_layer(case)
    kind(stock)
    if first:
        kind(layer)
        lowtide.lean(layer, keep)
    else:
        kind(lowtide.lean(layer, keep))
    assert list(layer.state_dict()) == list(stock.state_dict())
    torch.testing.assert_close(results_of(layer, case), results_of(stock, case))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", CELLS)
def test_weights_are_computed_anew_at_each_call(cell: str, kind: Parametrize) -> None:
    case = Case(cell=cell)
    stock, layer = stock_layer(case), stock_layer(case)
    for each in (stock, lowtide.lean(layer)):
        kind(each)
        call(each, case, Arguments.draw(case))
        with torch.no_grad():
            for parameter in each.parameters():
                parameter.mul_(1.5)
    torch.testing.assert_close(results_of(layer, case), results_of(stock, case))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", CELLS)
def test_lean_and_back_leaves_a_parametrized_stock_layer(cell: str, kind: Parametrize) -> None:
    case = Case(cell=cell)
    layer = stock_layer(case)
    kind(layer)
    expected = results_of(layer, case)
    parameters = list(layer.parameters())
    lowtide.stock(lowtide.lean(layer))
    assert parametrize.type_before_parametrizations(layer) is getattr(torch.nn, case.cell.partition("_")[0])
    assert type(layer).__name__ == f"Parametrized{case.cell.partition('_')[0]}"
    assert all(after is before for after, before in zip(layer.parameters(), parameters, strict=True))
    torch.testing.assert_close(results_of(layer, case), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", CELLS)
def test_removing_parametrizations_leaves_a_plain_lean_layer(cell: str, kind: Parametrize) -> None:
    case = Case(cell=cell)
    layer = stock_layer(case)
    kind(layer)
    expected = call(layer, case, Arguments.draw(case))
    lowtide.lean(layer, "gates")
    for name in list(layer.parametrizations):
        parametrize.remove_parametrizations(layer, name)
    assert type(layer) is getattr(lowtide.nn, case.cell.partition("_")[0])
    torch.testing.assert_close(call(layer, case, Arguments.draw(case)), expected)
    assert type(lowtide.stock(layer)) is getattr(torch.nn, case.cell.partition("_")[0])
    torch.testing.assert_close(call(layer, case, Arguments.draw(case)), expected)


@old_style
def test_removing_old_weight_norm_leaves_a_plain_lean_layer() -> None:
    case = Case()
    layer = stock_layer(case)
    normalize_by_hook(layer)
    lowtide.lean(layer)
    expected = call(layer, case, Arguments.draw(case))
    for name in NAMES:
        torch.nn.utils.remove_weight_norm(layer, name)
    torch.testing.assert_close(call(layer, case, Arguments.draw(case)), expected)
    assert dict(layer.named_parameters()).keys() == dict(stock_layer(case).named_parameters()).keys()


def test_a_copy_of_a_parametrized_layer_is_untouched_by_leaning_the_original() -> None:
    case = Case()
    layer = stock_layer(case)
    normalize(layer)
    other = copy.deepcopy(layer)
    lowtide.lean(layer)
    assert not isinstance(other, lowtide.nn.LSTM)
    torch.testing.assert_close(results_of(layer, case), results_of(other, case))


def test_a_parametrized_lean_layer_is_copied_whole() -> None:
    case = Case()
    layer = stock_layer(case)
    normalize(lowtide.lean(layer, "gates"))
    call(layer, case, Arguments.draw(case))
    other = copy.deepcopy(layer)
    assert isinstance(other, lowtide.nn.LSTM)
    assert other.keep == "gates"
    torch.testing.assert_close(results_of(layer, case), results_of(other, case))


def test_cached_parametrizations_are_computed_once() -> None:
    case = Case()
    layer = lowtide.lean(stock_layer(case))
    calls = []
    parametrize.register_parametrization(layer, NAMES[0], Doubled())
    layer.parametrizations[NAMES[0]][0].register_forward_hook(lambda *_: calls.append(1))
    with parametrize.cached():
        call(layer, case, Arguments.draw(case))
        call(layer, case, Arguments.draw(case))
    assert len(calls) == 1
