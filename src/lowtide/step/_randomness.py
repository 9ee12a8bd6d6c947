"""The state of torch's random generators, as tensors that can lie among a chunk's boundary states."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Generators:
    """The generators that a model on these devices draws from: the CPU's, and each GPU's."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        """Watch the CPU and those of `devices` that are GPUs."""
        self._gpus = [device for device in dict.fromkeys(devices) if device.type == "cuda"]

    def state(self) -> list[Tensor]:
        """Where the generators stand."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]

    def restore(self, state: Sequence[Tensor]) -> None:
        """Put the generators where they stood."""
        torch.set_rng_state(state[0])
        for gpu, part in zip(self._gpus, state[1:], strict=True):
            torch.cuda.set_rng_state(part, gpu)

    def stand_at(self, state: Sequence[Tensor]) -> bool:
        """Whether nothing was drawn since."""
        return all(torch.equal(now, then) for now, then in zip(self.state(), state, strict=True))
