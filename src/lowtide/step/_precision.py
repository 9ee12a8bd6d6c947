"""What a forward computes in, by a plan's word for it; parameters and their gradients stay as they are."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from lowtide.errors import LowtideError

_AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16}


class Precision:
    """A precision by its name."""

    def __init__(self, name: str) -> None:
        """Look it up.

        Raises:
            LowtideError: There is none of that name.
        """
        if name not in _AUTOCAST:
            raise LowtideError(
                what=f"precision={name!r}",
                why="a step computes in what the parameters are of, or casts to it where torch.autocast does",
                fix=f"choose one of {', '.join(map(repr, _AUTOCAST))}",
            )
        self._dtype = _AUTOCAST[name]

    def on(self, device: torch.device) -> AbstractContextManager[None]:
        """The context to run a forward and its loss in. One that is left before the next forward keeps no casts."""
        return nullcontext() if self._dtype is None else torch.autocast(device.type, dtype=self._dtype)
