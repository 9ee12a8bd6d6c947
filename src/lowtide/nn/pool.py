"""One vector a sequence from one a step, carried from chunk to chunk and blind to padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.nn._carry import State
from lowtide.nn._context import carry_in, carry_out, valid_lengths
from lowtide.nn._lengths import Lengths, checked_lengths

How = Literal["last", "mean", "max", "attention"]


class Pool(torch.nn.Module):
    """The last valid step, or the mean, maximum or learned weighted mean of the valid steps.

    In a stream the result of a chunk is that of all steps so far, so the last chunk's is the whole sequence's. A
    sequence without any valid step gives zeros.

    ```python
    pool = lowtide.nn.Pool("mean", batch_first=True)
    features = pool(outputs)  # (B, T, F) to (B, F)
    ```
    """

    def __init__(self, how: How, size: int | None = None, *, batch_first: bool = False) -> None:
        """Choose what becomes of the steps.

        Args:
            how: "last", "mean", "max", or "attention": a mean weighted by the softmax over time of a learned score.
            size: F, which "attention" needs for its score.
            batch_first: Whether inputs are (B, T, F) rather than (T, B, F).
        """
        super().__init__()
        if how not in _FOLDS:
            raise LowtideError(
                what=f"Pool({how!r}) is no way to pool.",
                why="It says what becomes of a sequence's steps.",
                fix=f"Choose one of {', '.join(map(repr, _FOLDS))}.",
            )
        if (how == "attention") != (size is not None):
            raise LowtideError(
                what=f"Pool({how!r}) was given size={size}.",
                why='"attention" learns a score from F features, and nothing else has weights.',
                fix='Give the number of features with "attention", and only there: Pool("attention", 256).',
            )
        self.how: How = how
        self.batch_first = batch_first
        self.score = None if size is None else torch.nn.Linear(size, 1, bias=False)

    def forward(self, x: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Pool (T, B, F), or (B, T, F) if batch_first, into (B, F).

        Args:
            x: Outputs of a layer.
            lengths: Valid steps of each sequence; inside a step they are known and need not be given.
        """
        rows = x.transpose(0, 1) if self.batch_first else x
        steps, batch = rows.shape[:2]
        valid = _valid_steps(rows, self._lengths(lengths, steps, batch))
        scores = None if self.score is None else self.score(rows).squeeze(-1)
        state = _FOLDS[self.how](rows, valid, scores, carry_in(self, _BEGINNINGS[self.how](rows)))
        carry_out(self, state)
        return _result(self.how, state).to(x.dtype)

    def extra_repr(self) -> str:
        """Say how."""
        return f"{self.how!r}" + (", batch_first=True" if self.batch_first else "")

    @staticmethod
    def _lengths(lengths: Lengths | None, steps: int, batch: int) -> Tensor | None:
        if lengths is not None:
            return checked_lengths(lengths, sequences=batch, steps=steps)
        return valid_lengths(steps, batch)


def _valid_steps(rows: Tensor, lengths: Tensor | None) -> Tensor:
    """(T, B), true where a step belongs to its sequence."""
    steps, batch = rows.shape[:2]
    if lengths is None:
        return torch.ones(steps, batch, dtype=torch.bool, device=rows.device)
    return torch.arange(steps, device=rows.device)[:, None] < lengths.to(rows.device)


def _wide(rows: Tensor) -> Tensor:
    """In float32 at least: sums over many steps of halves would lose what comes late."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _nothing(rows: Tensor) -> State:
    """A total of no steps, and their number or mass."""
    wide = _wide(rows[0])
    return torch.zeros_like(wide), wide.new_zeros(len(wide), 1)


_BEGINNINGS: dict[How, Callable[[Tensor], State]] = {
    "last": lambda rows: (torch.zeros_like(rows[0]),),
    "mean": _nothing,
    "max": lambda rows: (torch.full_like(rows[0], -torch.inf),),
    "attention": lambda rows: (*_nothing(rows), torch.full_like(_nothing(rows)[1], -torch.inf)),
}
"""The state before a sequence's first step, from rows of its shape and type."""


def _fold_last(rows: Tensor, valid: Tensor, _: Tensor | None, state: State) -> State:
    (before,) = state
    counts = valid.sum(0)
    index = (counts - 1).clamp(min=0)[None, :, None].expand(1, -1, rows.shape[-1])
    return (torch.where(counts[:, None] > 0, rows.gather(0, index)[0], before),)


def _fold_mean(rows: Tensor, valid: Tensor, _: Tensor | None, state: State) -> State:
    wide = _wide(rows)
    total, count = state
    return total + torch.where(valid[:, :, None], wide, 0).sum(0), count + valid.sum(0)[:, None]


def _fold_max(rows: Tensor, valid: Tensor, _: Tensor | None, state: State) -> State:
    (highest,) = state
    # Of equal ones the first takes the gradient, here as over the whole sequence: .max(dim) names the first.
    here = torch.where(valid[:, :, None], rows, -torch.inf).max(0).values
    return (torch.where((here > highest) | here.isnan(), here, highest),)


def _fold_attention(rows: Tensor, valid: Tensor, scores: Tensor | None, state: State) -> State:
    """Running softmax: sums relative to the highest score so far (Milakov and Gimelshein 2018, arXiv:1805.02867)."""
    assert scores is not None
    wide, scores = _wide(rows), torch.where(valid, _wide(scores), -torch.inf)
    total, mass, highest = state
    # A shift that cancels out: no gradient goes through it. Finite, for sequences that have not begun.
    highest = highest.detach()
    now = torch.maximum(highest, scores.detach().amax(0)[:, None])
    shift = now.clamp(min=torch.finfo(now.dtype).min)
    shrink = (highest - shift).exp()
    weights = (scores[:, :, None] - shift).exp()
    return total * shrink + (weights * wide).sum(0), mass * shrink + weights.sum(0), now


_FOLDS: dict[How, Callable[[Tensor, Tensor, Tensor | None, State], State]] = {
    "last": _fold_last,
    "mean": _fold_mean,
    "max": _fold_max,
    "attention": _fold_attention,
}
"""From a chunk's rows, its valid steps, their scores and the state before to the state after."""


def _result(how: How, state: State) -> Tensor:
    if how == "max":
        return torch.where(state[0].isneginf(), 0, state[0])
    if how == "last":
        return state[0]
    total, mass = state[:2]
    return total / torch.where(mass == 0, 1, mass)
