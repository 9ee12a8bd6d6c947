"""What is computed in a measurement: a recurrent stack of some size on a batch of some shape. Loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CellName = Literal["LSTM", "GRU", "RNN tanh"]


@dataclass(frozen=True)
class Work:
    """One forward and backward pass of a stack, float32, time-major."""

    cell: CellName
    batch: int
    steps: int
    """Time steps of the longest sequence."""
    inputs: int
    hidden: int
    layers: int = 1
    shortest: int = 0
    """Steps of the shortest sequence of a packed batch; 0 for a dense batch."""

    def __post_init__(self) -> None:
        assert not self.packed or self.batch > 1, "a packed batch has a longest and a shortest sequence"

    @property
    def packed(self) -> bool:
        """Whether the batch is a PackedSequence."""
        return self.shortest > 0

    @property
    def title(self) -> str:
        """How the work is called in tables, and what it is selected by."""
        name = f"{self.cell} L{self.layers}" if self.layers > 1 else self.cell
        sizes = f"I{self.inputs} H{self.hidden}"
        if self.packed:
            return f"{name} packed, lengths {self.shortest}-{self.steps}, B{self.batch} {sizes}"
        return f"{name} B{self.batch} T{self.steps} {sizes}"

    @property
    def lengths(self) -> list[int]:
        """Steps of each sequence, longest first, evenly spread where the batch is packed."""
        if not self.packed:
            return [self.steps] * self.batch
        span = self.steps - self.shortest
        return [self.steps - round(span * index / (self.batch - 1)) for index in range(self.batch)]
