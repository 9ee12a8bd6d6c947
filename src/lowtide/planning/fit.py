"""The answer of `fits`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """Whether something fits, and why."""

    fits: bool
    why: str
    floor: int
    """The least bytes that training could take."""

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        return f"{'yes' if self.fits else 'no'}: {self.why}"
