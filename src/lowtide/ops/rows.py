"""Which rows a batch has at each time step: the native kernels' view of dense, packed and padded sequences.

A *row* is one time step of one sequence. The kernels see sequences sorted by falling length, as a PackedSequence holds
them; an index leads from there to the caller's order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lowtide.errors import LowtideError


@dataclass(frozen=True)
class BatchRows:
    """The rows of one batch. The arrays are None where every sequence has every step."""

    steps: int
    """Steps that any sequence has: less than the padded length where all are shorter."""
    batch: int
    total: int
    at_time: Tensor | None = None
    """(T,) sequences that have step t, falling."""
    before_time: Tensor | None = None
    """(T + 1,) rows before step t."""
    before_step_reversed: Tensor | None = None
    """(T + 1,) rows before step s when steps are counted from the end."""
    order: Tensor | None = None
    """(B,) the caller's number of each sorted sequence, for padded batches."""

    @property
    def is_padded(self) -> bool:
        """Whether the caller's tensors hold steps that belong to no sequence."""
        return self.order is not None

    def sort(self, state: Tensor | None) -> Tensor | None:
        """Bring (layers, B, size) states into the kernels' order."""
        return state if state is None or self.order is None else state.index_select(1, self.order)

    def unsort(self, state: Tensor) -> Tensor:
        """Bring (layers, B, size) states back into the caller's order."""
        return state if self.order is None else torch.empty_like(state).index_copy_(1, self.order, state)


def dense_rows(steps: int, batch: int) -> BatchRows:
    """Every sequence has every step."""
    return BatchRows(steps=steps, batch=batch, total=steps * batch)


def packed_rows(batch_sizes: Tensor) -> BatchRows:
    """The rows of a PackedSequence's data."""
    steps, batch = batch_sizes.numel(), int(batch_sizes[0])
    if int(batch_sizes[-1]) == batch:
        return dense_rows(steps, batch)
    return _ragged_rows(batch_sizes.contiguous(), order=None)


def padded_rows(lengths: Tensor, steps: int) -> BatchRows:
    """The valid rows in the first `steps` steps of a padded batch; its sequences have these lengths, in any order."""
    order = torch.argsort(lengths, descending=True, stable=True)
    ended = torch.bincount(lengths, minlength=steps + 1).cumsum(0)[:steps]
    return _ragged_rows(lengths.numel() - ended, order=order)


def check_range(lengths: Tensor, steps: int) -> None:
    """Refuse lengths that end outside of a padded batch."""
    wrong = (lengths < 0) | (lengths > steps)
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0])
        raise LowtideError(
            what=f"lengths[{where}] is {int(lengths[where])}, outside 0 to {steps}.",
            why=f"The padded batch has {steps} steps, and a sequence ends within them.",
            fix="Pass the number of valid steps of each sequence, or pad the batch to the longest one.",
        )


def _ragged_rows(at_time: Tensor, order: Tensor | None) -> BatchRows:
    before_time = _running_total(at_time)
    return BatchRows(
        steps=at_time.numel(),
        batch=int(at_time[0]) if order is None else order.numel(),
        total=int(before_time[-1]),
        at_time=at_time,
        before_time=before_time,
        before_step_reversed=_running_total(at_time.flip(0)),
        order=order,
    )


def _running_total(counts: Tensor) -> Tensor:
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))
