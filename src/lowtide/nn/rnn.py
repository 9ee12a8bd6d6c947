"""A drop-in torch.nn.RNN that keeps little of its forward pass."""

from __future__ import annotations

from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from lowtide.nn._layer import LeanLayer
from lowtide.nn._lengths import Lengths
from lowtide.ops.spec import Keep


class RNN(LeanLayer, torch.nn.RNN):
    """torch.nn.RNN, parameter for parameter and gradient for gradient, in less memory.

    ```python
    layer = lowtide.nn.RNN(40, 128, num_layers=2, batch_first=True)
    outputs, h = layer(inputs)
    outputs, h = layer(padded, lengths=[7, 3, 5])
    ```
    """

    stock_class: ClassVar[type[torch.nn.RNNBase]] = torch.nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        keep: Keep = "outputs",
        chunk_steps: int = 0,
        state_steps: int = 0,
    ) -> None:
        """Make the layer that torch.nn.RNN would make from the same arguments, drawing the same weights.

        Args:
            input_size: Width of the inputs.
            hidden_size: Width of the state.
            num_layers: Layers stacked on each other.
            nonlinearity: "tanh" or "relu".
            bias: Whether the steps have biases.
            batch_first: Whether inputs and outputs are (B, T, width) rather than (T, B, width).
            dropout: Probability of zeroing an output between layers, in training.
            bidirectional: Whether each layer also runs from the last step to the first.
            device: Where the parameters live.
            dtype: What the parameters are made of.
            keep: What survives until the backward pass. "gates" and "outputs": each layer's outputs, which are all
                that a plain RNN needs. "boundaries": of a unidirectional stack only the last layer's outputs and
                the states between chunks; the rest is computed again.
            chunk_steps: Time steps that the backward pass works on at once; 0 for an automatic choice.
            state_steps: Time steps between kept states, at least `chunk_steps`; 0 for as many as `chunk_steps`.
        """
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            nonlinearity,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.set_options(keep, chunk_steps, state_steps)

    @overload
    def forward(
        self, input: Tensor, hx: Tensor | None = None, *, lengths: Lengths | None = None
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: Tensor | None = None, *, lengths: Lengths | None = None
    ) -> tuple[PackedSequence, Tensor]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,  # noqa: A002 - torch's name for it
        hx: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
    ) -> Any:
        """Run the stack and return its outputs and each sequence's final state.

        Args:
            input: (T, B, input_size), (B, T, input_size) if batch_first, (T, input_size), or a PackedSequence.
            hx: Initial states, (layers * directions, B, hidden_size), without B for a single sequence; zeros if None.
            lengths: Valid steps of each sequence of a padded batch, in any order. Outputs beyond them are zero, and
                the final states are those of each sequence's last valid step (of no step at all: the initial ones).
        """
        return self.run(input, hx, lengths)
