"""Where a stock layer does more than its documentation says, and models rely on it, a lean layer does the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad

import lowtide
import lowtide.nn
from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep

NAMES = ("LSTM", "GRU", "RNN")


def pair(name: str, *sizes: int, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.RNNBase, torch.nn.RNNBase]:
    """A stock layer and a lean one with the same parameters."""
    torch.manual_seed(0)
    stock = getattr(torch.nn, name)(*sizes, dtype=dtype)
    return stock, lowtide.lean(copy.deepcopy(stock))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [3, 40])
def test_outputs_of_time_major_layers_can_be_viewed_whatever_the_strides_of_the_inputs(name: str, steps: int) -> None:
    stock, lean = pair(name, 3, 4)
    batch_first = torch.randn(5, steps, 3, dtype=torch.float64)
    for inputs in (batch_first.transpose(0, 1), batch_first[:, :1].transpose(0, 1).expand(steps, 5, 3)):
        torch.testing.assert_close(lean(inputs)[0].view(-1, 4), stock(inputs)[0].view(-1, 4))


@pytest.mark.parametrize("name", NAMES)
def test_numbers_marked_as_negative_are_read_as_what_they_are(name: str) -> None:
    stock, lean = pair(name, 1, 1)

    def negative(*shape: int) -> Tensor:
        marked = torch.randn(*shape, dtype=torch.complex128).conj().imag
        assert marked.is_neg()
        return marked

    inputs, gradient, state = negative(40, 5, 1), negative(40, 5, 1), negative(1, 5, 1)
    hx = (state, state) if name == "LSTM" else state
    results = []
    for layer in (stock, lean):
        leaf = inputs.detach().requires_grad_()
        outputs, _ = layer(leaf, hx)
        outputs.backward(gradient)
        results.append([outputs, leaf.grad, *(parameter.grad for parameter in layer.parameters())])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("hidden", [4, 16, 17, 37])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_an_infinite_input_spoils_no_more_gradients_than_in_stock(name: str, hidden: int, keep: Keep) -> None:
    stock, lean = pair(name, 3, hidden, 2, dtype=torch.float32)
    lowtide.lean(lean, keep=keep)
    inputs = torch.randn(20, 19, 3)
    inputs[5, 2, 1] = torch.inf
    spoiled = []
    for layer in (stock, lean):
        leaf = inputs.clone().requires_grad_()
        layer(leaf)[0].square().sum().backward()
        assert leaf.grad is not None
        found = [leaf.grad, *(parameter.grad for parameter in layer.parameters() if parameter.grad is not None)]
        spoiled.append([gradient.isnan() for gradient in found])
    assert any(bool(part.any()) for part in spoiled[0])
    torch.testing.assert_close(*spoiled)


@pytest.mark.parametrize("name", NAMES)
def test_function_transforms_go_through_torchs_own_layer(name: str) -> None:
    stock, lean = pair(name, 3, 4)
    inputs = torch.randn(20, 3, 3, dtype=torch.float64)

    def gradients(layer: torch.nn.RNNBase) -> dict[str, Tensor]:
        parameters = dict(layer.named_parameters())
        found: dict[str, Tensor] = grad(lambda given: functional_call(layer, given, (inputs,))[0].sum())(parameters)
        return found

    torch.testing.assert_close(gradients(lean), gradients(stock))
    with pytest.raises(LowtideError, match=r"torch\.func reached a lean layer called with lengths"):
        grad(lambda x: lean(x, lengths=[20, 7, 3])[0].sum())(inputs)


@pytest.mark.parametrize("name", NAMES)
def test_several_gradients_at_once_are_refused_with_the_way_out(name: str) -> None:
    _, lean = pair(name, 3, 4)
    outputs = lean(torch.randn(20, 3, 3, dtype=torch.float64))[0]
    with pytest.raises(LowtideError, match=r"lowtide\.stock\(model\)"):
        torch.autograd.grad(outputs, next(lean.parameters()), torch.ones(2, *outputs.shape), is_grads_batched=True)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_layers_take_batches_of_any_size(name: str) -> None:
    torch.compiler.reset()
    stock, lean = pair(name, 3, 4, 2)
    lean.dropout = stock.dropout = 0.5
    compiled = torch.compile(lean, fullgraph=True, backend="aot_eager")
    for steps, batch in ((30, 2), (3, 2), (1, 1)):
        inputs = torch.randn(steps, batch, 3, dtype=torch.float64)
        torch.manual_seed(1)
        expected = stock(inputs)[0]
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(inputs)[0], expected)


def test_compiled_layers_refuse_lengths_beyond_the_batch() -> None:
    torch.compiler.reset()
    layer = lowtide.nn.LSTM(3, 4)
    compiled = torch.compile(lambda x, n: layer(x, lengths=n)[0], fullgraph=True, backend="aot_eager")
    inputs = torch.randn(40, 3, 3)
    assert compiled(inputs, torch.tensor([40, 1, 0])).shape == (40, 3, 4)
    for wrong in ([41, 1, 2], [3, -1, 2]):
        with pytest.raises(LowtideError, match="outside 0 to 40"):
            compiled(inputs, torch.tensor(wrong))


@pytest.mark.parametrize("wrong", ["abc", [[1], [2, 3]], object()], ids=["text", "ragged", "object"])
def test_lengths_that_hold_no_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(LowtideError, match="lengths"):
        lowtide.nn.GRU(3, 4)(torch.randn(5, 3, 3), lengths=wrong)


def test_what_is_no_model_is_refused() -> None:
    for act in (lowtide.lean, lowtide.stock):
        with pytest.raises(LowtideError, match="NoneType"):
            act(None)  # type: ignore[type-var]
