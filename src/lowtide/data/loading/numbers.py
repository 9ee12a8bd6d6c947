"""Whole numbers as users have them: `lengths.max()` is one of NumPy's, and means the same as Python's own."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a user gives
    """A whole number of NumPy as Python's, which states and messages are made of; anything else as it is."""
    return int(value) if isinstance(value, np.integer) else value


def make_plain(owner: object, *names: str) -> None:
    """The same for attributes of a frozen dataclass that is being made."""
    for name in names:
        object.__setattr__(owner, name, plain(getattr(owner, name)))
