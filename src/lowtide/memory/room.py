"""What one limit leaves: the value that all ways to look for limits give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Counted = Literal["resident memory", "address space", "GPU memory"]


@dataclass(frozen=True)
class Room:
    """One of the limits that hold here."""

    left: int
    """Bytes that this process tree may take above what it holds now; below zero where it is over the limit."""
    total: int
    """The limit as it is set."""
    counts: Counted
    """What the limit counts."""
    source: str
    """What it is, in words."""
