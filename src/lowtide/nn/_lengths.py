"""Lengths of the sequences in a padded batch: what is accepted, and the one form that `ops` takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lowtide.errors import LowtideError

Lengths = Tensor | Sequence[int]


def checked_lengths(lengths: Lengths, *, sequences: int, steps: int) -> Tensor:
    """Return `lengths` as int64 on the CPU, one for each sequence and none beyond `steps`."""
    tensor = _as_integers(lengths)
    if tensor.shape != (sequences,):
        raise LowtideError(
            what=f"lengths has shape {tuple(tensor.shape)}, and the batch has {sequences} sequences.",
            why="Each sequence of a padded batch ends at its own step.",
            fix="Give one length for each sequence, in the order of the batch.",
        )
    # Values are not known while torch.compile traces; the operators check them again when they run.
    if not torch.compiler.is_compiling():
        _check_range(tensor, steps)
    return tensor


def _as_integers(lengths: Lengths) -> Tensor:
    tensor = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths)
    if not isinstance(lengths, Tensor) and tensor.numel() == 0:
        tensor = tensor.long()
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise LowtideError(
            what=f"lengths holds {tensor.dtype}, not whole numbers.",
            why="A sequence ends after a whole number of steps.",
            fix="Give integers; for a boolean mask, give mask.sum() along its time axis.",
        )
    return tensor.to(device="cpu", dtype=torch.int64)


def _check_range(lengths: Tensor, steps: int) -> None:
    wrong = (lengths < 0) | (lengths > steps)
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0])
        raise LowtideError(
            what=f"lengths[{where}] is {int(lengths[where])}, outside 0 to {steps}.",
            why=f"The padded batch has {steps} steps, and a sequence ends within them.",
            fix="Pass the number of valid steps of each sequence, or pad the batch to the longest one.",
        )
