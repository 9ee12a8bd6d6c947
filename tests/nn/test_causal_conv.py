"""CausalConv1d sees the steps before and no later ones, whole or in chunks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from lowtide.nn import CausalConv1d
from lowtide.nn._carry import Carry
from lowtide.nn._context import BatchContext, running


@given(st.integers(1, 4), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(1, 8))
def test_outputs_and_gradients_are_those_of_a_padded_convolution_whole_and_in_chunks(
    kernel_size: int, dilation: int, bias: bool, batch_first: bool, chunk_steps: int
) -> None:
    layer = CausalConv1d(4, 6, kernel_size, dilation=dilation, groups=2, bias=bias, batch_first=batch_first).double()
    x = torch.randn(8, 3, 4, dtype=torch.float64, requires_grad=True)
    padded = F.pad(x.permute(1, 2, 0), (layer.context_steps, 0))
    wanted = F.conv1d(padded, layer.weight, layer.bias, dilation=dilation, groups=2).permute(2, 0, 1)
    parts, carry = [], Carry({})
    for start in range(0, 8, chunk_steps):
        part = x[start : start + chunk_steps]
        with running(BatchContext(steps=len(part), carry=carry)):
            rows = layer(part.transpose(0, 1) if batch_first else part)
        parts.append(rows.transpose(0, 1) if batch_first else rows)
        carry = Carry(carry.leaving)
    whole = layer(x.transpose(0, 1)).transpose(0, 1) if batch_first else layer(x)
    sources = [x, *layer.parameters()]
    cotangent = torch.randn_like(wanted)
    expected = torch.autograd.grad(wanted, sources, cotangent)
    for found in (whole, torch.cat(parts)):
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(torch.autograd.grad(found, sources, cotangent), expected)


def test_later_steps_change_nothing() -> None:
    layer = CausalConv1d(2, 2, 3)
    x = torch.randn(9, 1, 2)
    changed = x.clone()
    changed[5:] = 7.0
    torch.testing.assert_close(layer(changed)[:5], layer(x)[:5], rtol=0, atol=0)


def test_the_parameters_are_those_of_the_stock_layer() -> None:
    CausalConv1d(2, 4, 3).load_state_dict(torch.nn.Conv1d(2, 4, 3).state_dict())
