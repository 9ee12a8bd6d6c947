"""`lean` changes the class of recurrent layers where they sit, and nothing else about the model; `stock` undoes it."""
# ruff: noqa: ANN401, D102, D107 - layers, states and results have as many forms as torch gives them; a module's forward needs no docstring

from __future__ import annotations

import collections
import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

import lowtide
from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, Arguments, Case, call, lean_layer, stock_layer


class Tagger(torch.nn.Module):
    """A model as users write it: layers as attributes, in lists, in dictionaries, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.encoder = torch.nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.layers = torch.nn.ModuleList([torch.nn.GRU(12, 5, 2), torch.nn.Sequential(torch.nn.Linear(5, 5))])
        self.heads = torch.nn.ModuleDict({"tags": torch.nn.RNN(5, 3, nonlinearity="relu")})
        self.again = self.encoder
        self.cell = torch.nn.LSTMCell(3, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        rows, _ = self.encoder(self.embedding(tokens))
        rows, _ = self.layers[0](rows)
        outputs, _ = self.heads["tags"](self.layers[1](rows))
        hidden, _ = self.cell(outputs[:, -1])
        assert isinstance(hidden, Tensor)
        return hidden


class OwnForward(torch.nn.LSTM):
    """A subclass whose author changed what the layer computes."""

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002 - torch's name for it
        outputs, final = super().forward(input, hx)
        return 2 * outputs, final


class Deeper(OwnForward):
    """Inherits the changed forward."""


class Named(torch.nn.GRU):
    """A subclass that adds to the layer but leaves its forward alone."""

    def __init__(self, size: int, label: str) -> None:
        super().__init__(size, size)
        self.label = label

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, label={self.label}"


class Recurrent(lowtide.nn.LSTM):
    """Written as a subclass of a lean layer."""


TOKENS = torch.arange(6).reshape(2, 3)
RECURRENT = ("encoder", "layers.0", "heads.tags")


def test_every_recurrent_layer_becomes_lean_where_it_sits_and_nothing_else_changes() -> None:
    model = Tagger()
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    expected = model(TOKENS)
    assert lowtide.lean(model) is model
    assert dict(model.named_modules()) == modules
    after = dict(model.named_parameters())
    assert after.keys() == parameters.keys()
    assert all(after[name] is parameters[name] for name in after)
    kinds = {name: type(module) for name, module in model.named_modules() if isinstance(module, lean_kinds())}
    assert kinds == dict(zip(RECURRENT, lean_kinds(), strict=True))
    assert type(model.cell) is torch.nn.LSTMCell
    assert model.again is model.encoder
    torch.testing.assert_close(model(TOKENS), expected)


def lean_kinds() -> tuple[type[torch.nn.Module], ...]:
    return lowtide.nn.LSTM, lowtide.nn.GRU, lowtide.nn.RNN


@pytest.mark.parametrize("cell", CELLS)
def test_a_model_that_is_a_layer_itself_becomes_lean(cell: str) -> None:
    case = Case(cell=cell)
    layer = stock_layer(case)
    assert lowtide.lean(layer) is layer
    assert isinstance(layer, lean_kinds())
    torch.testing.assert_close(
        call(layer, case, Arguments.draw(case)), call(stock_layer(case), case, Arguments.draw(case))
    )


def test_twice_is_once_and_a_second_call_changes_keep() -> None:
    model = lowtide.lean(lowtide.lean(Tagger()))
    assert type(model.encoder) is lowtide.nn.LSTM
    for keep in KEEPS:
        lowtide.lean(model, keep=keep)
        assert keeps(model) == {keep}


def keeps(model: torch.nn.Module) -> set[Keep]:
    return {
        module.keep
        for module in model.modules()
        if isinstance(module, lowtide.nn.LSTM | lowtide.nn.GRU | lowtide.nn.RNN)
    }


def test_leaning_again_keeps_the_chunk_lengths() -> None:
    layer = lowtide.lean(lowtide.nn.LSTM(3, 4, chunk_steps=8, state_steps=16), "gates")
    assert (layer.keep, layer.chunk_steps, layer.state_steps) == ("gates", 8, 16)


def test_stock_undoes_lean_to_the_last_attribute() -> None:
    model, untouched = Tagger(), Tagger()
    before = {name: (type(module), set(module.__dict__)) for name, module in untouched.named_modules()}
    assert lowtide.stock(lowtide.lean(model, "gates")) is model
    assert {name: (type(module), set(module.__dict__)) for name, module in model.named_modules()} == before
    model.load_state_dict(untouched.state_dict())
    torch.testing.assert_close(model(TOKENS), untouched(TOKENS))
    assert b"lowtide" not in pickle.dumps(model.encoder)


def test_stock_twice_or_without_lean_changes_nothing() -> None:
    model = Tagger()
    expected = model(TOKENS)
    lowtide.stock(lowtide.stock(model))
    torch.testing.assert_close(model(TOKENS), expected)


@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_constructed_lean_becomes_stock(cell: str) -> None:
    case = Case(cell=cell, chunk_steps=2)
    layer = lean_layer(case)
    expected = call(layer, case, Arguments.draw(case))
    lowtide.stock(layer)
    assert type(layer) is type(stock_layer(case))
    assert layer.__dict__.keys() == stock_layer(case).__dict__.keys()
    torch.testing.assert_close(call(layer, case, Arguments.draw(case)), expected)


def test_weights_replaced_while_lean_are_the_stock_layers_afterwards() -> None:
    layer = lowtide.lean(torch.nn.GRU(3, 4))
    layer.weight_hh_l0 = torch.nn.Parameter(torch.zeros(12, 4))
    inputs = torch.ones(5, 2, 3)
    expected = layer(inputs)
    torch.testing.assert_close(lowtide.stock(layer)(inputs), expected)


def test_an_optimizer_made_before_trains_the_lean_model() -> None:
    losses = []
    for prepare in (lowtide.lean, lowtide.stock):
        torch.manual_seed(0)
        model = Tagger()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        prepare(model)
        losses.append([train_step(model, optimizer) for _ in range(5)])
    torch.testing.assert_close(*(torch.stack(each) for each in losses))
    assert losses[0][-1] < losses[0][0]


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    loss: Tensor = (model(TOKENS) - 0.5).square().mean()
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()


def test_hooks_and_training_flag_stay() -> None:
    model = Tagger()
    model.encoder.eval()
    calls: list[str] = []
    model.encoder.register_forward_hook(lambda *_: calls.append("forward"))
    model.encoder.register_forward_pre_hook(lambda *_: calls.append("before"))
    lowtide.lean(model)
    model(TOKENS)
    assert calls == ["before", "forward"]
    assert not model.encoder.training
    assert model.training


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])  # noqa: S301 - made here
def test_a_leaned_model_is_copied_and_pickled(again: Any) -> None:
    model = lowtide.lean(Tagger(), "boundaries")
    other = again(model)
    assert keeps(other) == {"boundaries"}
    assert type(other.encoder) is lowtide.nn.LSTM
    torch.testing.assert_close(other(TOKENS), model(TOKENS))


def test_a_subclass_with_a_forward_of_its_own_is_left_alone() -> None:
    for kind in (OwnForward, Deeper):
        layer = kind(3, 4)
        expected = layer(torch.ones(5, 2, 3))
        lowtide.lean(layer)
        assert type(layer) is kind
        assert "keep" not in layer.__dict__
        torch.testing.assert_close(layer(torch.ones(5, 2, 3)), expected)


def test_a_layer_whose_forward_was_replaced_is_left_alone() -> None:
    layer = torch.nn.LSTM(3, 4)
    layer.forward = lambda inputs: inputs  # type: ignore[method-assign, assignment]
    assert type(lowtide.lean(layer)) is torch.nn.LSTM


def test_a_subclass_without_a_forward_becomes_lean_and_stays_itself() -> None:
    layer = Named(4, "first")
    expected = layer(torch.ones(5, 2, 4))
    lowtide.lean(layer, "gates")
    assert isinstance(layer, Named)
    assert isinstance(layer, lowtide.nn.GRU)
    assert repr(layer) == "Named(4, 4, keep='gates', label=first)"
    torch.testing.assert_close(layer(torch.ones(5, 2, 4)), expected)
    assert type(lowtide.lean(Named(4, "second"))) is type(layer)
    assert type(lowtide.stock(layer)) is Named
    assert layer.__dict__.keys() == Named(4, "third").__dict__.keys()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])  # noqa: S301 - made here
def test_a_leaned_subclass_is_copied_and_pickled(again: Any) -> None:
    layer = lowtide.lean(Named(4, "first"), "gates")
    other = again(layer)
    assert type(other) is type(layer)
    assert isinstance(other, lowtide.nn.GRU)
    assert (other.label, other.keep) == ("first", "gates")
    torch.testing.assert_close(other(torch.ones(5, 2, 4)), layer(torch.ones(5, 2, 4)))
    assert type(lowtide.stock(other)) is Named


def test_a_parametrized_subclass_becomes_lean_and_stock_again() -> None:
    layer = Named(4, "first")
    torch.nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    expected = layer(torch.ones(5, 2, 4))
    lowtide.lean(layer)
    assert isinstance(layer, lowtide.nn.GRU)
    torch.testing.assert_close(layer(torch.ones(5, 2, 4)), expected)
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight_hh_l0")
    assert type(lowtide.stock(layer)) is Named
    torch.testing.assert_close(layer(torch.ones(5, 2, 4)), expected)


def test_a_subclass_of_a_lean_layer_takes_keep_and_has_no_stock_to_go_back_to() -> None:
    layer = lowtide.lean(Recurrent(3, 4), "gates")
    assert (type(layer), layer.keep) == (Recurrent, "gates")
    assert type(lowtide.stock(layer)) is Recurrent


def test_an_unknown_keep_mode_is_refused_before_anything_is_changed() -> None:
    model = Tagger()
    with pytest.raises(LowtideError, match="keep='all'"):
        lowtide.lean(model, keep="all")  # type: ignore[arg-type]
    assert type(model.encoder) is torch.nn.LSTM


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script.*")
def test_a_scripted_layer_is_refused_before_anything_is_changed() -> None:
    model = torch.nn.Sequential(
        collections.OrderedDict(plain=torch.nn.LSTM(3, 4), compiled=torch.jit.script(torch.nn.GRU(4, 4)))
    )
    with pytest.raises(LowtideError, match="compiled is a GRU compiled by TorchScript"):
        lowtide.lean(model)
    assert type(model.plain) is torch.nn.LSTM


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script.*")
def test_a_scripted_module_without_recurrent_layers_is_left_alone() -> None:
    model = torch.nn.Sequential(torch.nn.LSTM(3, 4), torch.jit.script(torch.nn.Linear(4, 4)))
    assert type(lowtide.lean(model)[0]) is lowtide.nn.LSTM


def test_a_model_without_recurrent_layers_is_returned_as_it_is() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    assert lowtide.stock(lowtide.lean(model)) is model


def test_a_leaned_model_takes_packed_sequences_in_any_order() -> None:
    layer = torch.nn.LSTM(3, 4, bidirectional=True)
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(n, 3) for n in (2, 5, 3)], enforce_sorted=False)
    expected = layer(packed)
    results = lowtide.lean(layer)(packed)
    assert isinstance(results[0], PackedSequence)
    torch.testing.assert_close(results, expected)
