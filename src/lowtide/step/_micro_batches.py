"""An effective batch divided by its sequences, into parts that fit: those of like lengths together."""

from __future__ import annotations

import torch
from torch import Tensor

from lowtide.step._batch import StepBatch


def micro_batches(batch: StepBatch, rows: int) -> list[StepBatch]:
    """Parts of at most so many sequences, each as long as its own longest one, the longest first.

    Nothing is copied yet; a part whose sequences are no neighbours is picked out when it is loaded.
    """
    if batch.sequences <= rows:
        return [batch]
    order = _order(batch)
    starts = range(0, batch.sequences, rows)
    if order is None:
        return [batch.rows(slice(start, min(start + rows, batch.sequences))) for start in starts]
    return [batch.rows(order[start : start + rows]) for start in starts]


def _order(batch: StepBatch) -> Tensor | None:
    """The sequences by falling length; None where they lie so."""
    if batch.lengths is None:
        return None
    order = torch.argsort(batch.lengths, descending=True, stable=True)
    return None if torch.equal(order, torch.arange(batch.sequences)) else order
