"""Pool makes one vector a sequence out of its valid steps, whole or in chunks, with the gradients that follow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import lowtide
from lowtide.nn import Pool
from lowtide.nn._carry import Carry
from lowtide.nn._context import BatchContext, running
from lowtide.nn.pool import How

WIDTH = 3
HOWS: tuple[How, ...] = ("last", "mean", "max", "attention")


def make(how: How, *, batch_first: bool = False) -> Pool:
    torch.manual_seed(0)
    return Pool(how, WIDTH if how == "attention" else None, batch_first=batch_first).double()


def expected(pool: Pool, rows: Tensor) -> Tensor:
    """Of one sequence, (T, F), by torch's own functions."""
    if len(rows) == 0:
        return rows.sum(0)  # zeros, with a gradient
    if pool.score is not None:
        return (torch.softmax(pool.score(rows), 0) * rows).sum(0)
    return {"last": rows[-1], "mean": rows.mean(0), "max": rows.max(0).values}[pool.how]


@given(st.sampled_from(HOWS), st.lists(st.integers(0, 9), min_size=1, max_size=4), st.booleans(), st.integers(1, 10))
def test_valid_steps_alone_count_whole_and_in_chunks(
    how: How, lengths: list[int], batch_first: bool, chunk_steps: int
) -> None:
    pool = make(how, batch_first=batch_first)
    x = torch.randn(9, len(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    wanted = torch.stack([expected(pool, x[:length, lane]) for lane, length in enumerate(lengths)])
    cotangent = torch.randn_like(wanted)
    sources = [x, *pool.parameters()]
    wanted_gradients = torch.autograd.grad(wanted, sources, cotangent, allow_unused=True, materialize_grads=True)

    def laid_out(part: Tensor) -> Tensor:
        return part.transpose(0, 1) if batch_first else part

    whole = pool(laid_out(x), lengths)
    carry, chunked = Carry({}), None
    for start in range(0, 9, chunk_steps):
        part = x[start : start + chunk_steps]
        valid = (torch.tensor(lengths) - start).clamp(0, len(part))
        with running(BatchContext(lengths=valid, steps=len(part), carry=carry)):
            chunked = pool(laid_out(part))
        carry = Carry(carry.leaving)
    assert chunked is not None
    for found in (whole, chunked):
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            torch.autograd.grad(found, sources, cotangent, allow_unused=True, materialize_grads=True),
            wanted_gradients,
        )


def test_equal_maxima_give_their_gradient_to_the_first_whole_and_in_chunks() -> None:
    pool, x = make("max"), torch.zeros(6, 1, WIDTH, requires_grad=True)
    (whole,) = torch.autograd.grad(pool(x).sum(), x)
    assert whole[0].eq(1).all()
    assert whole[1:].eq(0).all()
    carry = Carry({})
    for start in (0, 2, 4):
        with running(BatchContext(steps=2, carry=carry)):
            result = pool(x[start : start + 2])
        carry = Carry(carry.leaving)
    (chunked,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(chunked, whole)


def test_attention_stays_finite_where_scores_are_large() -> None:
    pool = make("attention")
    assert pool.score is not None
    torch.nn.init.constant_(pool.score.weight, 1e4)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    pool(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_not_a_number_is_not_hidden() -> None:
    for how in HOWS:
        x = torch.zeros(4, 1, WIDTH, dtype=torch.float64)
        x[-1] = torch.nan
        assert make(how)(x).isnan().all()


def test_halves_are_summed_in_float32() -> None:
    x = torch.full((5000, 1, 1), 1.0, dtype=torch.bfloat16)
    assert float(Pool("mean")(x)) == 1


@pytest.mark.parametrize(("how", "size"), [("median", None), ("mean", 4), ("attention", None)])
def test_what_means_nothing_is_refused(how: How, size: int | None) -> None:
    with pytest.raises(lowtide.LowtideError, match=how):
        Pool(how, size)


def test_it_says_what_it_does() -> None:
    assert repr(Pool("mean", batch_first=True)) == "Pool('mean', batch_first=True)"
