"""The chunks of every layout hold each valid row once, in the order of their direction."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lowtide.ops.layout import Layout, lay_out

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def walked(layout: Layout, tensor: Tensor, direction: int) -> list[Tensor]:
    chunks = [layout.chunk(number, direction) for number in range(layout.chunks)]
    return [chunk.turn(chunk.take(tensor)) for chunk in chunks]


def numbered(lengths: list[int]) -> Tensor:
    """(T, B, 1) of which entry [t, b] is 100 t + b."""
    return (100 * torch.arange(max(lengths))[:, None] + torch.arange(len(lengths)))[:, :, None]


def reversed_in_time(dense: Tensor, lengths: list[int]) -> Tensor:
    turned = dense.clone()
    for sequence, length in enumerate(lengths):
        turned[:length, sequence] = dense[:length, sequence].flip(0)
    return turned


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, chunk_steps=st.integers(1, 10), direction=st.integers(0, 1))
def test_packed_chunks_make_up_the_packed_rows_of_the_direction(
    lengths: list[int], chunk_steps: int, direction: int
) -> None:
    lengths = sorted(lengths, reverse=True)
    dense = numbered(lengths)
    data, batch_sizes, _, _ = pack_padded_sequence(dense, torch.tensor(lengths))
    layout = lay_out(data, batch_sizes, None, chunk_steps)
    turned = reversed_in_time(dense, lengths) if direction else dense
    expected = pack_padded_sequence(turned, torch.tensor(lengths)).data
    assert torch.cat(walked(layout, data, direction)).equal(expected)


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, chunk_steps=st.integers(1, 10), direction=st.integers(0, 1))
def test_padded_chunks_make_up_the_packed_rows_of_the_sorted_sequences(
    lengths: list[int], chunk_steps: int, direction: int
) -> None:
    dense = numbered(lengths)
    layout = lay_out(dense, None, torch.tensor(lengths), chunk_steps)
    turned = reversed_in_time(dense, lengths) if direction else dense
    rows = torch.cat(walked(layout, turned if direction == 0 else dense, direction))
    packed = pack_padded_sequence(turned, torch.tensor(lengths), enforce_sorted=False)
    assert pad_packed_sequence(packed._replace(data=rows))[0].equal(pad_packed_sequence(packed)[0])


@pytest.mark.parametrize("direction", [0, 1])
def test_dense_chunks_are_views_of_the_steps_in_the_order_of_the_direction(direction: int) -> None:
    dense = numbered([7, 7])
    layout = lay_out(dense, None, None, 3)
    chunk = layout.chunk(0, direction)
    assert chunk.take(dense).data_ptr() == dense[4 * direction].data_ptr()
    assert torch.cat(walked(layout, dense, direction)).equal(dense.flip(0) if direction else dense)


@pytest.mark.parametrize("direction", [0, 1])
def test_put_writes_or_adds_where_take_reads(direction: int) -> None:
    dense = numbered([5, 2, 4]).double()
    layout = lay_out(dense, None, torch.tensor([5, 2, 4]), 2)
    copy = torch.zeros_like(dense)
    for number in range(layout.chunks):
        chunk = layout.chunk(number, direction)
        chunk.put(copy, chunk.take(dense))
        chunk.put(copy, chunk.take(dense), add=True)
    valid = torch.arange(5)[:, None] < torch.tensor([5, 2, 4])
    assert copy.equal(2 * dense * valid[:, :, None])
