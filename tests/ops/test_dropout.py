"""The masks are the stock layer's, element for element, kept as bits and applied to any rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from lowtide.ops import dropout
from lowtide.ops.dropout import apply_mask, apply_mask_at, draw_masks
from lowtide.ops.reference import reference_stack
from lowtide.ops.spec import StackSpec

CPU = torch.device("cpu")


def gru(width: int, p: float, layers: int = 2, *, bidirectional: bool = False) -> StackSpec:
    return StackSpec("gru", 3, width, num_layers=layers, dropout=p, bidirectional=bidirectional)


def stock_noise(rows: int, width: int, p: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.dropout(torch.ones(rows, width, dtype=dtype), p, train=True)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    width=st.integers(1, 20),
    p=st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_applying_a_drawn_mask_is_torch_dropout_and_leaves_the_generator_where_that_does(
    *, rows: int, width: int, p: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    expected = [stock_noise(rows, width, p, dtype) for _ in range(2)]
    after = torch.rand(3)
    torch.manual_seed(seed)
    masks = draw_masks(gru(width, p, layers=3), rows, CPU)
    assert torch.rand(3).equal(after)
    ones = torch.ones(rows, width, dtype=dtype)
    assert len(masks) == 2
    for mask, noise in zip(masks, expected, strict=True):
        assert apply_mask(mask, 0, ones, p).equal(noise)


def test_draws_beyond_one_block_are_packed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "_BLOCK", 16)
    torch.manual_seed(1)
    expected = stock_noise(13, 7, 0.4)
    torch.manual_seed(1)
    (mask,) = draw_masks(gru(7, 0.4), 13, CPU)
    assert apply_mask(mask, 0, torch.ones(13, 7), 0.4).equal(expected)


def test_element_i_is_bit_i_and_7_of_byte_i_over_8_and_bits_past_the_end_are_clear() -> None:
    torch.manual_seed(2)
    kept = stock_noise(5, 3, 0.5).flatten() != 0
    torch.manual_seed(2)
    (mask,) = draw_masks(gru(3, 0.5), 5, CPU)
    assert mask.dtype == torch.uint8
    assert mask.shape == (2,)
    bits = [int(mask[i >> 3]) >> (i & 7) & 1 for i in range(16)]
    assert bits == [*kept.int().tolist(), 0]


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 20), start=st.integers(0, 10), steps=st.integers(1, 4), sequences=st.integers(1, 5))
def test_any_run_of_rows_gets_its_own_bits(width: int, start: int, steps: int, sequences: int) -> None:
    count = steps * sequences
    (mask,) = draw_masks(gru(width, 0.5), start + count + 3, CPU)
    whole = apply_mask(mask, 0, torch.ones(start + count + 3, width), 0.5)
    part = apply_mask(mask, start, torch.ones(steps, sequences, width), 0.5)
    assert part.view(count, width).equal(whole[start : start + count])


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 20), numbers=st.lists(st.integers(0, 29), min_size=1, max_size=12))
def test_rows_in_any_order_get_their_own_bits(width: int, numbers: list[int]) -> None:
    (mask,) = draw_masks(gru(width, 0.5), 30, CPU)
    whole = apply_mask(mask, 0, torch.ones(30, width), 0.5)
    found = apply_mask_at(mask, torch.tensor(numbers), torch.ones(len(numbers), width), 0.5)
    assert found.equal(whole[numbers])


def test_nothing_is_drawn_where_nothing_or_everything_is_dropped() -> None:
    before = torch.get_rng_state()
    assert draw_masks(gru(4, 0.0), 5, CPU) == []
    (mask,) = draw_masks(gru(4, 1.0), 5, CPU)
    assert torch.get_rng_state().equal(before)
    assert apply_mask(mask, 0, torch.ones(5, 4), 1.0).eq(0).all()


def test_the_gradient_is_dropped_like_the_rows() -> None:
    (mask,) = draw_masks(gru(4, 0.5), 6, CPU)
    rows = torch.randn(6, 4, requires_grad=True)
    (found,) = torch.autograd.grad(apply_mask(mask, 0, rows, 0.5).sum(), rows)
    assert found.equal(apply_mask(mask, 0, torch.ones(6, 4), 0.5))


@pytest.mark.parametrize("layout", ["dense", "batch_first", "packed"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_stock_layer_draws_in_this_order_and_shape(layout: str, *, bidirectional: bool) -> None:
    """Held to what torch does, by the reference with masks that are drawn by hand."""
    spec = gru(5, 0.4, layers=3, bidirectional=bidirectional)
    stock = torch.nn.GRU(3, 5, 3, dropout=0.4, bidirectional=bidirectional, batch_first=layout == "batch_first")
    inputs, batch_sizes = torch.randn(7, 4, 3), None
    given: object = inputs
    if layout == "batch_first":
        given = inputs.transpose(0, 1)
    if layout == "packed":
        packed = pack_padded_sequence(inputs, torch.tensor([7, 5, 2, 1]))
        inputs, batch_sizes, given = packed.data, packed.batch_sizes, packed
    torch.manual_seed(5)
    outputs, _ = stock(given)
    outputs = {
        "dense": lambda: outputs,
        "batch_first": lambda: outputs.transpose(0, 1),
        "packed": lambda: outputs.data,
    }[layout]()
    torch.manual_seed(5)
    noise = [torch.dropout(torch.ones(*inputs.shape[:-1], spec.output_size), 0.4, train=True) for _ in range(2)]
    weights = list(stock.parameters())
    found, _, _ = reference_stack(spec, inputs, None, None, weights, batch_sizes=batch_sizes, masks=noise)
    torch.testing.assert_close(found, outputs)
