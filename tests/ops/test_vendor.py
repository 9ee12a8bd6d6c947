"""Torch's fused layers in time chunks: the stock layer's results and gradients, with less kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lowtide.ops.spec import KEEPS, Cell, Keep, StackSpec
from lowtide.ops.vendor import default_chunk_steps, vendor_stack
from tests.ops._cases import (
    Case,
    Tensors,
    assert_same,
    dense,
    gradients,
    present,
    run_case,
    run_stock,
    stock_layer,
    tensors_of,
    with_keep,
)

EVERY_KEEP = pytest.mark.parametrize("keep", KEEPS)


LSTM = StackSpec("lstm", 3, 5, num_layers=2, chunk_steps=3)


@EVERY_KEEP
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_stay_as_near_to_float64_as_the_stock_layer(keep: Keep, cell: Cell, dtype: torch.dtype) -> None:
    case, exact = dense(replace(LSTM, keep=keep, chunk_steps=4, cell=cell), steps=32)
    truth, leaves = run_stock(case, exact)
    rounded = tensors_of(case, dtype)
    found = run_case(vendor_stack, case, rounded)
    stock, stock_leaves = run_stock(case, rounded)
    ours = [*present(found), *gradients(found, rounded.leaves())]
    theirs = [*present(stock), *gradients(stock, stock_leaves)]
    for one, other, true in zip(ours, theirs, [*present(truth), *gradients(truth, leaves)], strict=True):
        assert one.dtype == dtype
        largest = true.abs().max()
        limit = torch.finfo(dtype).eps * 8 * largest + 2 * (other - true).abs().max()
        assert (one - true).abs().max() <= limit


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_sum_over_many_chunks_does_not_round_like_a_half(dtype: torch.dtype) -> None:
    spec = StackSpec("rnn_tanh", 2, 4, chunk_steps=2)
    case = Case(spec, "dense", (600,), with_state=False, seed=0)
    rounded = tensors_of(case, dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in rounded.leaves()]
    inputs, *weights = exact
    true = torch.autograd.grad(vendor_stack(spec, inputs.square(), None, None, weights)[0].sum(), weights)
    results = vendor_stack(spec, rounded.inputs.double().square().to(dtype), None, None, rounded.weights)
    for one, other in zip(torch.autograd.grad(results[0].sum(), rounded.weights), true, strict=True):
        assert (one - other).abs().max() <= 2 * torch.finfo(dtype).eps * other.abs().max()


def kept_bytes(case: Case, tensors: Tensors) -> int:
    """What a forward pass keeps for its backward pass, beside the tensors it was given."""
    kept = {tensor.untyped_storage().data_ptr(): 0 for tensor in tensors.leaves()}

    def pack(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run_case(vendor_stack, case, tensors)
    assert result[0].requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_only_outputs_of_inner_layers_mask_bits_and_states_at_chunk_starts_are_kept(cell: Cell, dropout: float) -> None:
    steps, sequences, layers, width, chunk_steps = 64, 2, 3, 8, 16
    spec = StackSpec("gru", 4, width, num_layers=layers, chunk_steps=chunk_steps, dropout=dropout)
    spec = replace(spec, cell=cell)
    case, tensors = dense(spec, steps, sequences)
    states = (1 + spec.has_cell_state) * layers * (steps // chunk_steps - 1) * sequences * width * 8
    bits = (layers - 1) * steps * sequences * width // 8 if dropout else 0
    inner = (layers - 1) * steps * sequences * width * 8
    assert kept_bytes(with_keep(case, "outputs"), tensors) == inner + states + bits
    assert kept_bytes(with_keep(case, "boundaries"), tensors) == states + bits
    assert kept_bytes(with_keep(case, "gates"), tensors) > 3 * (inner + states + bits)


def test_the_last_output_is_not_held_by_the_graph() -> None:
    case, tensors = dense(LSTM, steps=300)
    outputs, h, _ = run_case(vendor_stack, case, tensors)
    pointer = outputs.untyped_storage().data_ptr()
    assert h.grad_fn is not None
    saved = [getattr(node, "saved_tensors", ()) for node, _ in h.grad_fn.next_functions]
    kept = [tensor for tensors_of_node in saved for tensor in tensors_of_node if tensor is not None]
    assert len(kept) > 4
    assert pointer not in {tensor.untyped_storage().data_ptr() for tensor in kept}


def test_two_directions_keep_both_whole_outputs_under_boundaries_too() -> None:
    case, tensors = dense(replace(LSTM, bidirectional=True), steps=12)
    assert kept_bytes(with_keep(case, "outputs"), tensors) == kept_bytes(with_keep(case, "boundaries"), tensors)


@pytest.mark.parametrize("keep", ["outputs", "boundaries"])
def test_what_ran_under_autocast_is_recomputed_under_autocast(keep: Keep) -> None:
    case, _ = dense(replace(LSTM, keep=keep, hidden_size=16))
    tensors = tensors_of(case, torch.float32)
    arguments = (tensors.inputs, tensors.h0, tensors.c0, tensors.weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = vendor_stack(case.spec, *arguments)
        stock = vendor_stack(replace(case.spec, keep="gates"), *arguments)
    assert found[0].dtype == stock[0].dtype
    for one, other in zip(gradients(found, tensors.leaves()), gradients(stock, tensors.leaves()), strict=True):
        assert one.dtype == other.dtype
        assert (one - other).abs().max() <= 0.02 * other.abs().max()


@pytest.mark.parametrize("keep", ["outputs", "boundaries"])
def test_a_whole_graph_compiles_where_dynamo_may_trace_autograd(keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep), steps=5)

    def run(inputs: Tensor) -> Tensor:
        return vendor_stack(case.spec, inputs, tensors.h0, tensors.c0, tensors.weights)[0]

    with torch._dynamo.config.patch(trace_autograd_ops=True):  # noqa: SLF001
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")(tensors.inputs)
        found = torch.autograd.grad(compiled.square().sum(), tensors.leaves())
    eager = run(tensors.inputs)
    assert_same([compiled, *found], [eager, *torch.autograd.grad(eager.square().sum(), tensors.leaves())])


def test_chunks_default_to_a_least_length_and_to_sqrt_of_a_sixth_in_very_long_sequences() -> None:
    assert default_chunk_steps(1, "cpu") == 64
    assert default_chunk_steps(4_000, "cpu") == 64
    assert default_chunk_steps(4_000, "cuda") == 128
    assert default_chunk_steps(6_000_000, "cpu") == default_chunk_steps(6_000_000, "cuda") == 1000


def test_the_drawn_stock_layers_have_the_weights_that_a_spec_counts() -> None:
    spec = replace(LSTM, proj_size=2, bidirectional=True)
    assert len(list(stock_layer(spec).parameters())) == 2 * 2 * spec.weights_per_layer
