"""Torch's fused stack in one call and layer by layer: the same results, gradients and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from torch import Tensor

from lowtide.ops.fused import initial_state, run_fused, run_fused_by_layer
from lowtide.ops.spec import StackSpec
from tests.ops._cases import Case, Result, assert_same, cases, gradients, present, run_case, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def run(
    by_layer: bool,
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
) -> Result:
    """Either way, in the form of a path."""
    assert lengths is None
    sequences = inputs.shape[1] if batch_sizes is None else int(batch_sizes[0])
    act = run_fused_by_layer if by_layer else run_fused
    state = initial_state(spec, inputs, sequences, h0, c0)
    outputs, final = act(spec, inputs, state, weights, batch_sizes=batch_sizes)
    return outputs, final[0], final[1] if spec.has_cell_state else None


@given(cases(layouts=["dense", "batch_first", "packed"]))
def test_layer_by_layer_is_what_one_call_computes_under_one_seed(case: Case) -> None:
    tensors = tensors_of(case)
    found, expected = (run_case(partial(run, by_layer), case, tensors) for by_layer in (True, False))
    assert_same(present(found), present(expected))
    assert_same(gradients(found, tensors.leaves()), gradients(expected, tensors.leaves()))
