"""Lengths of the sequences in a padded batch: what is accepted, and the one form that `ops` takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.ops.rows import check_range

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
    # Values are not known while torch.compile traces; the operator checks them when it runs.
    if not torch.compiler.is_compiling():
        check_range(tensor, steps)
    return tensor


def _as_integers(lengths: Lengths) -> Tensor:
    try:
        tensor = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise LowtideError(
            what=f"lengths is a {type(lengths).__name__} that holds no numbers: {error}",
            why="It says for each sequence how many of its steps are valid.",
            fix="Give a list or a tensor of whole numbers.",
        ) from error
    if not isinstance(lengths, Tensor) and tensor.numel() == 0:
        tensor = tensor.long()
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise LowtideError(
            what=f"lengths holds {tensor.dtype}, not whole numbers.",
            why="A sequence ends after a whole number of steps.",
            fix="Give integers; for a boolean mask, give mask.sum() along its time axis.",
        )
    return tensor.to(device="cpu", dtype=torch.int64)
