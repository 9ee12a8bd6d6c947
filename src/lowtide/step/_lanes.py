"""Which sequences of a batch are meant: one truth value for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lowtide.errors import LowtideError

Lanes = Tensor | npt.NDArray[np.bool_] | Sequence[bool]


def read_lanes(lanes: Lanes, sequences: int | None) -> Tensor:
    """(B,) truth values on the CPU.

    Args:
        lanes: What was given.
        sequences: B; None where it is not known yet.

    Raises:
        LowtideError: They are no truth values, or not one for each sequence.
    """
    read = torch.as_tensor(lanes).cpu()
    if read.dtype != torch.bool or read.dim() != 1 or (sequences is not None and len(read) != sequences):
        count = "" if sequences is None else f" of {sequences} sequences"
        raise LowtideError(
            what=f"lanes is {read.dtype} of shape {tuple(read.shape)}, for a batch{count}",
            why="it says of each sequence whether it begins anew",
            fix="give one True or False for each sequence; for numbers of lanes, torch.isin(torch.arange(B), numbers)",
        )
    return read


def joined_lanes(one: Tensor, other: Tensor) -> Tensor:
    """Those meant by either."""
    read_lanes(one, len(other))
    return one | other
