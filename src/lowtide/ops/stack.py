"""One stack of recurrent layers, forward and differentiable: the single door of `ops` for the layers above it.

The native kernels take what they cover. Torch's own fused layers, run in time chunks, take the rest, and the smallest
batches of eager calls: the kernels pack the weights anew at each call, which a few rows do not repay. A graph that is
recorded holds one path for every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from torch import Tensor

from lowtide.ops.native import covers, is_recorded, native_stack
from lowtide.ops.spec import StackSpec
from lowtide.ops.vendor import vendor_stack

_FEW_ROWS = 16
"""Fewer rows than this (a step or two of generating text, say) are torch's: packing costs as much as some 10 rows."""


def run_stack(
    spec: StackSpec,
    inputs: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    weights: Sequence[Tensor],
    *,
    batch_sizes: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run the whole stack and return (outputs, hT, cT); cT is None but for an LSTM.

    `inputs` is (T, B, I) with any strides (batch-first callers pass a transposed view), or the (rows, I) data of a
    PackedSequence with its `batch_sizes` (int64, on the CPU). `lengths` (int64, on the CPU, one for each sequence, in
    any order, up to T) goes with dense inputs: outputs past a sequence's end are zero, and hT, cT are those of its
    last valid step. h0 and c0 are (layers * directions, B, size), zeros when None. `weights` are flat in torch's
    order: for each layer, for each direction: w_ih, w_hh, [b_ih, b_hh], [w_hr]. Outputs have the shape of `inputs`.
    """
    path = native_stack
    if not covers(spec, inputs):
        path = vendor_stack
    elif not is_recorded(inputs) and prod(inputs.shape[:-1]) < _FEW_ROWS:
        path, spec = vendor_stack, replace(spec, keep="gates")  # nothing worth recomputing
    return path(spec, inputs, h0, c0, weights, batch_sizes=batch_sizes, lengths=lengths)
