"""The plain reference gives what torch's layers give; everything else is tested against it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from torch import Tensor

from lowtide.ops.reference import reference_stack
from lowtide.ops.spec import StackSpec
from tests.ops._cases import Case, assert_same, cases, gradients, present, run_case, run_stock, tensors_of


@settings(max_examples=80, deadline=None)
@given(cases(layouts=["dense", "packed", "padded"], dropout=False))
def test_equals_the_stock_layer_in_outputs_states_and_gradients(case: Case) -> None:
    tensors = tensors_of(case)
    expected, leaves = run_stock(case, tensors)
    found = run_case(reference_stack, case, tensors)
    assert_same(present(found), present(expected))
    assert_same(gradients(found, tensors.leaves()), gradients(expected, leaves))


def test_a_sequence_of_no_steps_keeps_its_state_and_yields_zeros() -> None:
    spec = StackSpec("lstm", 3, 4, num_layers=2, bidirectional=True)
    tensors = tensors_of(Case(spec, "padded", (0, 5, 2), with_state=True, seed=1))
    assert tensors.h0 is not None
    assert tensors.c0 is not None
    lengths = torch.tensor([0, 5, 2])
    outputs, h, c = reference_stack(spec, tensors.inputs, tensors.h0, tensors.c0, tensors.weights, lengths=lengths)
    assert c is not None
    assert outputs[:, 0].eq(0).all()
    assert torch.equal(h[:, 0], tensors.h0[:, 0])
    assert torch.equal(c[:, 0], tensors.c0[:, 0])


def test_padding_is_never_looked_at() -> None:
    spec = StackSpec("gru", 3, 4, bidirectional=True)
    tensors = tensors_of(Case(spec, "padded", (4, 2), with_state=False, seed=2))
    spoilt = tensors.inputs.detach().clone()
    spoilt[2:, 1] = torch.nan

    def run(inputs: Tensor) -> list[Tensor]:
        result = reference_stack(spec, inputs, None, None, tensors.weights, lengths=torch.tensor([4, 2]))
        return [*present(result), *gradients(result, tensors.weights)]

    assert_same(run(spoilt), run(tensors.inputs), tolerance=0)


def test_masks_multiply_what_the_next_layer_reads() -> None:
    spec = StackSpec("rnn_tanh", 3, 4, num_layers=2)
    tensors = tensors_of(Case(spec, "dense", (5, 5), with_state=False, seed=3))
    mask = torch.rand(5, 2, 4, dtype=torch.float64)
    found, _, _ = reference_stack(spec, tensors.inputs, None, None, tensors.weights, masks=[mask])
    below, above = StackSpec("rnn_tanh", 3, 4), StackSpec("rnn_tanh", 4, 4)
    middle, _, _ = reference_stack(below, tensors.inputs, None, None, tensors.weights[:4])
    expected, _, _ = reference_stack(above, middle * mask, None, None, tensors.weights[4:])
    assert_same([found], [expected], tolerance=0)
