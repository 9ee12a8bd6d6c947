"""What a stack of recurrent layers is, said once for every path that can run it.

`StackSpec` holds everything about a stack that is not a tensor. The layers of `lowtide.nn` make one for each
call; the native path (`native.py`), the vendor path (`vendor.py`) and the plain reference (`reference.py`) read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cell = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
Keep = Literal["gates", "outputs", "boundaries"]

GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KEEPS: tuple[Keep, ...] = ("gates", "outputs", "boundaries")


@dataclass(frozen=True)
class StackSpec:
    """The shape of a stack, and how much of its forward pass survives until the backward pass."""

    cell: Cell
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    bidirectional: bool = False
    batch_first: bool = False
    """Whether dense outputs lie in memory sequence by sequence, rather than time step by time step."""
    proj_size: int = 0
    dropout: float = 0.0
    """The probability in force between layers: zero in evaluation."""
    keep: Keep = "outputs"
    chunk_steps: int = 0
    """Time steps whose gates exist at once in the backward pass; 0 leaves the choice to the path."""
    state_steps: int = 0
    """Time steps between kept states, at least `chunk_steps`; 0 means `chunk_steps`."""

    @property
    def directions(self) -> int:
        """Two for a bidirectional stack, else one."""
        return 2 if self.bidirectional else 1

    @property
    def state_size(self) -> int:
        """Width of h: the projection's where there is one."""
        return self.proj_size or self.hidden_size

    @property
    def output_size(self) -> int:
        """Width of a layer's output, both directions side by side."""
        return self.directions * self.state_size

    @property
    def has_cell_state(self) -> bool:
        """Whether a second state, c, runs beside h."""
        return self.cell == "lstm"

    @property
    def weights_per_layer(self) -> int:
        """Tensors for each layer and direction, in torch's order: w_ih, w_hh, [b_ih, b_hh], [w_hr]."""
        return 2 + 2 * self.bias + (self.proj_size > 0)
