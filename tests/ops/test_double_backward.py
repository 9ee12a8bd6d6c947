"""Second derivatives of the chunked path are refused by name; the first order is given in any case."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.ops.double_backward import refuse_double_backward
from lowtide.ops.spec import Cell, StackSpec
from lowtide.ops.vendor import vendor_stack
from tests.ops._cases import Case, assert_same, tensors_of

SPEC = StackSpec("gru", 3, 4, chunk_steps=2)


def gradients(*, create_graph: bool) -> tuple[list[Tensor], list[Tensor]]:
    tensors = tensors_of(Case(SPEC, "dense", (5, 5), with_state=True, seed=1))
    outputs, _, _ = vendor_stack(SPEC, tensors.inputs, tensors.h0, None, tensors.weights)
    leaves = tensors.leaves()
    return list(torch.autograd.grad(outputs.square().sum(), leaves, create_graph=create_graph)), leaves


def test_the_first_order_is_the_same_with_create_graph() -> None:
    with_graph, _ = gradients(create_graph=True)
    assert_same(with_graph, gradients(create_graph=False)[0], tolerance=0)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("source", range(6))
def test_differentiating_any_gradient_again_names_the_stock_layer(number: int, source: int) -> None:
    found, leaves = gradients(create_graph=True)
    with pytest.raises(LowtideError, match=r"(?s)torch\.nn\.GRU.*lowtide\.stock\(model\)"):
        torch.autograd.grad(found[number].sum(), leaves[source], allow_unused=True)


def test_a_gradient_penalty_is_refused_rather_than_ignored() -> None:
    found, _ = gradients(create_graph=True)
    with pytest.raises(LowtideError):
        torch.autograd.backward(found[0].square().sum())


def test_differentiating_by_the_incoming_gradient_is_refused() -> None:
    tensors = tensors_of(Case(SPEC, "dense", (5, 5), with_state=True, seed=1))
    outputs, _, _ = vendor_stack(SPEC, tensors.inputs, tensors.h0, None, tensors.weights)
    incoming = torch.ones_like(outputs, requires_grad=True)
    (found,) = torch.autograd.grad(outputs, tensors.inputs, incoming, create_graph=True)
    with pytest.raises(LowtideError):
        torch.autograd.grad(found.sum(), incoming)


def test_without_create_graph_the_gradients_pass_untouched() -> None:
    gradient = torch.ones(3)
    with torch.no_grad():
        assert refuse_double_backward([gradient, None], "lstm", sources=[gradient]) == (gradient, None)


@pytest.mark.parametrize(
    ("cell", "name"), [("lstm", "torch.nn.LSTM"), ("rnn_tanh", "torch.nn.RNN"), ("rnn_relu", "torch.nn.RNN")]
)
def test_each_cell_names_its_layer_and_none_stays_none(cell: Cell, name: str) -> None:
    source = torch.ones(3, requires_grad=True)
    first, missing = refuse_double_backward([torch.ones(3), None], cell, sources=[source, None])
    assert missing is None
    assert first is not None
    with pytest.raises(LowtideError) as caught:
        torch.autograd.backward(first.sum())
    assert name in caught.value.fix
