"""What the native and the vendor path both promise: the stock layer's results and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lowtide.ops.dropout import apply_mask, draw_masks
from lowtide.ops.native import native_stack
from lowtide.ops.reference import reference_stack
from lowtide.ops.spec import KEEPS, Keep, StackSpec
from lowtide.ops.vendor import vendor_stack
from tests.ops._cases import (
    LAYOUTS,
    Case,
    assert_same,
    cases,
    dense,
    gradients,
    present,
    run_case,
    run_stock,
    tensors_of,
    with_keep,
)

Path = Callable[..., tuple[Tensor, Tensor, Tensor | None]]

EVERY_KEEP = pytest.mark.parametrize("keep", KEEPS)
EVERY_PATH = pytest.mark.parametrize("path", [native_stack, vendor_stack])

LSTM = StackSpec("lstm", 3, 5, num_layers=2, chunk_steps=3)


def covered(case: Case, path: Path) -> Case:
    """The case without what only torch's own layers compute."""
    return replace(case, spec=replace(case.spec, proj_size=0)) if path is native_stack else case


@EVERY_PATH
@settings(max_examples=200, deadline=None)
@given(cases(layouts=LAYOUTS))
def test_every_mode_equals_the_stock_layer_with_the_same_dropout(path: Path, case: Case) -> None:
    case = covered(case, path)
    tensors = tensors_of(case)
    expected, leaves = run_stock(case, tensors)
    found = run_case(path, case, tensors)
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


@EVERY_PATH
@settings(max_examples=100, deadline=None)
@given(cases(layouts=["padded"], empty=True))
def test_lengths_of_any_order_and_of_zero_equal_the_reference_under_one_seed(path: Path, case: Case) -> None:
    case = covered(case, path)
    tensors = tensors_of(case)
    spec, rows = case.spec, sum(case.lengths)
    torch.manual_seed(case.seed)
    masks = draw_masks(spec, rows, tensors.inputs.device)
    noise = [noise_of(mask, case) for mask in masks]
    given = (spec, tensors.inputs, tensors.h0, tensors.c0, tensors.weights)
    expected = reference_stack(*given, lengths=case.ragged(), masks=noise)
    found = run_case(path, case, tensors)
    assert_same(present(found), present(expected))
    if case.steps > 0:
        assert_same(gradients(found, tensors.leaves()), gradients(expected, tensors.leaves()))


@EVERY_PATH
@settings(max_examples=40, deadline=None)
@given(case=cases(layouts=LAYOUTS), data=st.data())
def test_gradients_of_any_subset_from_any_subset_of_results(path: Path, case: Case, data: st.DataObject) -> None:
    case = covered(case, path)
    tensors = tensors_of(case)
    leaves = tensors.leaves()
    chosen = data.draw(st.lists(st.integers(0, len(leaves) - 1), min_size=1, unique=True))
    used = data.draw(st.lists(st.integers(0, 1 + case.spec.has_cell_state), min_size=1, unique=True))

    def run(keep: Keep) -> list[Tensor]:
        result = run_case(path, with_keep(case, keep), tensors)
        parts = [present(result)[number] for number in used]
        total = torch.stack([part.square().sum() for part in parts]).sum()
        wanted = [leaves[number] for number in chosen]
        return list(torch.autograd.grad(total, wanted, materialize_grads=True))

    expected = run("gates")
    for number, leaf in enumerate(leaves):
        leaf.requires_grad_(number in chosen)
    assert_same(run("outputs"), expected)
    assert_same(run("boundaries"), expected)


@EVERY_PATH
@EVERY_KEEP
def test_backward_runs_twice_on_a_retained_graph(path: Path, keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    result = run_case(path, case, tensors)
    assert_same(gradients(result, tensors.leaves()), gradients(result, tensors.leaves()), tolerance=0)


@EVERY_PATH
@EVERY_KEEP
@pytest.mark.parametrize("changed", [0, 3])
def test_a_tensor_changed_in_place_before_backward_is_noticed(path: Path, keep: Keep, changed: int) -> None:
    case, tensors = dense(replace(LSTM, keep=keep))
    result = run_case(path, case, tensors)
    with torch.no_grad():
        tensors.leaves()[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(result, tensors.leaves())


@EVERY_PATH
@EVERY_KEEP
def test_without_gradients_the_results_are_the_same_and_nothing_is_kept(path: Path, keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    expected = run_case(path, case, tensors)
    with torch.no_grad():
        found = run_case(path, case, tensors)
    assert_same(present(found), present(expected), tolerance=0)
    assert not any(tensor.requires_grad for tensor in present(found))


@EVERY_PATH
@EVERY_KEEP
def test_gradcheck(path: Path, keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, hidden_size=3), steps=4)

    def run(inputs: Tensor, h0: Tensor, c0: Tensor, *weights: Tensor) -> list[Tensor]:
        return present(path(case.spec, inputs, h0, c0, weights))

    assert torch.autograd.gradcheck(run, tensors.leaves())


@EVERY_PATH
@EVERY_KEEP
def test_a_weight_used_twice_gets_the_sum(path: Path, keep: Keep) -> None:
    spec = StackSpec("gru", 5, 5, num_layers=2, keep=keep, chunk_steps=3)
    _, tensors = dense(spec)
    shared = tensors.weights[:4]
    result = path(spec, tensors.inputs, None, None, [*shared, *shared])
    twice = path(spec, tensors.inputs, None, None, [*shared, *(w.detach().requires_grad_() for w in shared)])
    apart = path(spec, tensors.inputs, None, None, [*(w.detach().requires_grad_() for w in shared), *shared])
    parts = zip(gradients(twice, shared), gradients(apart, shared), strict=True)
    assert_same(gradients(result, shared), [one + other for one, other in parts])


@EVERY_PATH
@EVERY_KEEP
def test_under_checkpoint_dropout_and_gradients_are_the_same(path: Path, keep: Keep) -> None:
    case, tensors = dense(replace(LSTM, keep=keep, dropout=0.4))
    arguments = (case.spec, tensors.inputs, tensors.h0, tensors.c0, tensors.weights)
    expected = run_case(path, case, tensors)
    torch.manual_seed(case.seed)
    found = checkpoint(path, *arguments, use_reentrant=False)
    incoming = [tensor.detach() for tensor in present(expected)]
    leaves = tensors.leaves()
    assert_same(
        torch.autograd.grad(present(found), leaves, incoming),
        torch.autograd.grad(present(expected), leaves, incoming),
        tolerance=0,
    )
