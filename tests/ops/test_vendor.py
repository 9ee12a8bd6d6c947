"""Torch's fused layers in time chunks: the stock layer's results and gradients, with less kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lowtide.ops.dropout import apply_mask, draw_masks
from lowtide.ops.reference import reference_stack
from lowtide.ops.spec import KEEPS, Cell, Keep, StackSpec
from lowtide.ops.vendor import default_chunk_steps, vendor_stack
from tests.ops._cases import (
    Case,
    Tensors,
    assert_same,
    cases,
    gradients,
    present,
    run_case,
    run_stock,
    stock_layer,
    tensors_of,
    with_keep,
)

EVERY_KEEP = pytest.mark.parametrize("keep", KEEPS)
LAYOUTS = ["dense", "batch_first", "packed", "padded"]


LSTM = StackSpec("lstm", 3, 5, num_layers=2, chunk_steps=3)


def dense(spec: StackSpec, steps: int = 8, sequences: int = 2, seed: int = 0) -> tuple[Case, Tensors]:
    case = Case(spec, "dense", (steps,) * sequences, with_state=True, seed=seed)
    return case, tensors_of(case)


@settings(max_examples=200, deadline=None)
@given(cases(layouts=LAYOUTS))
def test_every_mode_equals_the_stock_layer_with_the_same_dropout(case: Case) -> None:
    tensors = tensors_of(case)
    expected, leaves = run_stock(case, tensors)
    found = run_case(vendor_stack, case, tensors)
    assert_same(present(found), present(expected))
    assert_same(gradients(found, tensors.leaves()), gradients(expected, leaves))


def noise_of(mask: Tensor, case: Case) -> Tensor:
    """A mask over packed rows as (T, B, width) noise: step by step, the longest sequences first."""
    width, steps = case.spec.output_size, max(case.steps, 1)
    packed = apply_mask(mask, 0, torch.ones(sum(case.lengths), width, dtype=torch.float64), case.spec.dropout)
    noise = torch.zeros(steps, len(case.lengths), width, dtype=torch.float64)
    order = sorted(range(len(case.lengths)), key=lambda sequence: -case.lengths[sequence])
    places = [(t, b) for t in range(steps) for b in order if t < case.lengths[b]]
    for (t, b), row in zip(places, packed, strict=True):
        noise[t, b] = row
    return noise


@settings(max_examples=100, deadline=None)
@given(cases(layouts=["padded"], empty=True))
def test_lengths_of_any_order_and_of_zero_equal_the_reference_under_one_seed(case: Case) -> None:
    tensors = tensors_of(case)
    spec, rows = case.spec, sum(case.lengths)
    torch.manual_seed(case.seed)
    masks = draw_masks(spec, rows, tensors.inputs.device)
    noise = [noise_of(mask, case) for mask in masks]
    given = (spec, tensors.inputs, tensors.h0, tensors.c0, tensors.weights)
    expected = reference_stack(*given, lengths=case.ragged(), masks=noise)
    found = run_case(vendor_stack, case, tensors)
    assert_same(present(found), present(expected))
    if case.steps > 0:
        assert_same(gradients(found, tensors.leaves()), gradients(expected, tensors.leaves()))


@settings(max_examples=40, deadline=None)
@given(case=cases(layouts=LAYOUTS), data=st.data())
def test_gradients_of_any_subset_from_any_subset_of_results(case: Case, data: st.DataObject) -> None:
    tensors = tensors_of(case)
    leaves = tensors.leaves()
    chosen = data.draw(st.lists(st.integers(0, len(leaves) - 1), min_size=1, unique=True))
    used = data.draw(st.lists(st.integers(0, 1 + case.spec.has_cell_state), min_size=1, unique=True))

    def run(keep: Keep) -> list[Tensor]:
        result = run_case(vendor_stack, with_keep(case, keep), tensors)
        parts = [present(result)[number] for number in used]
        total = torch.stack([part.square().sum() for part in parts]).sum()
        wanted = [leaves[number] for number in chosen]
        return list(torch.autograd.grad(total, wanted, materialize_grads=True))

    expected = run("gates")
    for number, leaf in enumerate(leaves):
        leaf.requires_grad_(number in chosen)
    assert_same(run("outputs"), expected)
    assert_same(run("boundaries"), expected)


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


@EVERY_KEEP
def test_backward_runs_twice_on_a_retained_graph(keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    result = run_case(vendor_stack, case, tensors)
    assert_same(gradients(result, tensors.leaves()), gradients(result, tensors.leaves()), tolerance=0)


@EVERY_KEEP
@pytest.mark.parametrize("changed", [0, 3])
def test_a_tensor_changed_in_place_before_backward_is_noticed(keep: Keep, changed: int) -> None:
    case, tensors = dense(replace(LSTM, keep=keep))
    result = run_case(vendor_stack, case, tensors)
    with torch.no_grad():
        tensors.leaves()[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(result, tensors.leaves())


@EVERY_KEEP
def test_without_gradients_the_results_are_the_same_and_nothing_is_kept(keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    expected = run_case(vendor_stack, case, tensors)
    with torch.no_grad():
        found = run_case(vendor_stack, case, tensors)
    assert_same(present(found), present(expected), tolerance=0)
    assert not any(tensor.requires_grad for tensor in present(found))


@pytest.mark.parametrize("keep", ["outputs", "boundaries"])
def test_gradcheck(keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, hidden_size=3, proj_size=2), steps=4)

    def run(inputs: Tensor, h0: Tensor, c0: Tensor, *weights: Tensor) -> list[Tensor]:
        return present(vendor_stack(case.spec, inputs, h0, c0, weights))

    assert torch.autograd.gradcheck(run, tensors.leaves())


@EVERY_KEEP
def test_a_weight_used_twice_gets_the_sum(keep: Keep) -> None:
    spec = StackSpec("gru", 5, 5, num_layers=2, keep=keep, chunk_steps=3)
    _, tensors = dense(spec)
    shared = tensors.weights[:4]
    result = vendor_stack(spec, tensors.inputs, None, None, [*shared, *shared])
    twice = vendor_stack(spec, tensors.inputs, None, None, [*shared, *(w.detach().requires_grad_() for w in shared)])
    apart = vendor_stack(spec, tensors.inputs, None, None, [*(w.detach().requires_grad_() for w in shared), *shared])
    parts = zip(gradients(twice, shared), gradients(apart, shared), strict=True)
    assert_same(gradients(result, shared), [one + other for one, other in parts])


@EVERY_KEEP
def test_under_checkpoint_dropout_and_gradients_are_the_same(keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    arguments = (case.spec, tensors.inputs, tensors.h0, tensors.c0, tensors.weights)
    expected = run_case(vendor_stack, case, tensors)
    torch.manual_seed(case.seed)
    found = checkpoint(vendor_stack, *arguments, use_reentrant=False)
    incoming = [tensor.detach() for tensor in present(expected)]
    leaves = tensors.leaves()
    assert_same(
        torch.autograd.grad(present(found), leaves, incoming),
        torch.autograd.grad(present(expected), leaves, incoming),
        tolerance=0,
    )


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
