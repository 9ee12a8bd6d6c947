"""A convolution over time that looks only to the left, and carries what it will look at from chunk to chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from lowtide.nn._context import carry_in, carry_out, valid_lengths


class CausalConv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d along time: each output sees its own step and (kernel_size - 1) * dilation steps before it.

    The parameters are torch's. Inputs and outputs have the layout of recurrent layers, features last, and as many
    steps as came in; before a sequence's start lie zeros. In a stream, what a chunk leaves to the next are each
    sequence's last valid steps.

    ```python
    front = lowtide.nn.CausalConv1d(40, 128, kernel_size=5, batch_first=True)
    features = front(inputs)  # (B, T, 40) to (B, T, 128)
    ```
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the convolution.

        Args:
            in_channels: Features of the inputs.
            out_channels: Features of the outputs.
            kernel_size: Steps that an output sees, its own among them.
            dilation: Distance between the steps that it sees.
            groups: Groups of features that do not see each other.
            bias: Whether the outputs have a bias.
            batch_first: Whether inputs and outputs are (B, T, features) rather than (T, B, features).
            device: Where the parameters live.
            dtype: What the parameters are made of.
        """
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            dilation=dilation,
            groups=groups,
            bias=bias,
            device=device,
            dtype=dtype,
        )
        self.batch_first = batch_first

    @property
    def context_steps(self) -> int:
        """Steps to the left that an output sees."""
        return (self.kernel_size[0] - 1) * self.dilation[0]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name for it
        """Convolve (T, B, in_channels), or (B, T, in_channels) if batch_first."""
        channels = input.transpose(1, 2) if self.batch_first else input.permute(1, 2, 0)
        batch, features, steps = channels.shape
        if self.context_steps > 0:
            (left,) = carry_in(self, (channels.new_zeros(batch, features, self.context_steps),))
            channels = torch.cat([left, channels], -1)
            carry_out(self, (self._last_valid(channels, valid_lengths(steps, batch)),))
        outputs: Tensor = super().forward(channels)
        return outputs.transpose(1, 2) if self.batch_first else outputs.permute(2, 0, 1)

    def _last_valid(self, channels: Tensor, lengths: Tensor | None) -> Tensor:
        """The last steps of each sequence, from what lay left of a chunk and the chunk, (B, features, both)."""
        if lengths is None:
            return channels[:, :, channels.shape[-1] - self.context_steps :]
        # Position `length` is the first of the context_steps that end with the last valid one.
        places = lengths[:, None] + torch.arange(self.context_steps)
        return channels.gather(2, places.to(channels.device)[:, None, :].expand(-1, channels.shape[1], -1))
