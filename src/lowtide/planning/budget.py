"""How many bytes training may hold: as the user says it, or as this machine allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import torch

from lowtide.errors import LowtideError
from lowtide.memory.limit import limit
from lowtide.memory.sizes import in_words

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_WRITTEN = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_LEFT_TO_OTHERS = 0.03
"""Share of a limit that a plan leaves alone where no budget is given: what else runs there is not known."""

_ROUNDING = 0.01
"""Share by which a budget may exceed the limit and is taken for it: kernels round limits, and others come and go."""


@dataclass(frozen=True)
class Budget:
    """What may be held in all, and what is held now."""

    bytes: int
    source: str
    """In words."""
    held: int
    """By this process and its children; on a GPU by torch's allocator."""

    @property
    def left(self) -> int:
        """What may be taken above what is held."""
        return self.bytes - self.held


def read_budget(asked: int | str | None, device: torch.device) -> Budget:
    """Make out a budget, and see that it can be had.

    Raises:
        LowtideError: It means nothing, or is more than this machine has.
    """
    here = limit(device)
    if asked is None:
        return Budget(int(here.bytes * (1 - _LEFT_TO_OTHERS)), f"what there is here: {here.source}", here.held)
    wanted = bytes_of(asked)
    if wanted > here.bytes * (1 + _ROUNDING):
        raise LowtideError(
            what=f"a budget of {in_words(wanted)} where {in_words(here.bytes)} can be had ({here.source})",
            why="a plan that counts on memory that is not there would be killed",
            fix=f"give at most {in_words(here.bytes)}, or no budget for what there is",
        )
    return Budget(min(wanted, here.bytes), "as asked", here.held)


def bytes_of(asked: int | str) -> int:
    """Bytes, of a number or of words such as "2GiB" or "1.5 GB".

    Raises:
        LowtideError: They mean nothing.
    """
    if isinstance(asked, str):
        match = _WRITTEN.fullmatch(asked)
        if match and match[2].lower() in _UNITS:
            return _positive(int(Decimal(match[1]) * _UNITS[match[2].lower()]), asked)
    elif type(asked) is int:
        return _positive(asked, asked)
    raise _meaningless(asked)


def _positive(found: int, asked: int | str) -> int:
    if found < 1:
        raise _meaningless(asked)
    return found


def _meaningless(asked: object) -> LowtideError:
    return LowtideError(
        what=f"budget={asked!r}",
        why="a budget is a number of bytes",
        fix='give one like "2GiB", "1.5 GB" or 2 * 1024**3; None for what this machine allows',
    )
