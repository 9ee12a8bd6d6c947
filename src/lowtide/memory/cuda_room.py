"""The limit on a GPU's memory, for torch's allocator in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowtide.errors import UnsupportedError
from lowtide.memory.room import Room
from lowtide.memory.sizes import in_words

if TYPE_CHECKING:
    import torch

RESERVE = 256 << 20
"""Bytes that are left free: the driver loads kernels when they are first used, beside the allocator."""


def cuda_room(device: torch.device) -> tuple[int, Room]:
    """What this process's allocator has reserved on a GPU, and what it may reserve above that.

    Args:
        device: The GPU. This makes a context on it where there is none.

    Raises:
        UnsupportedError: There is no such GPU.
    """
    import torch  # noqa: PLC0415 - this part loads no framework by itself

    if device.type != "cuda" or not torch.cuda.is_available():
        raise UnsupportedError(
            what=f"the memory limit of device {str(device)!r} was asked for, and CUDA is "
            f"{'available' if torch.cuda.is_available() else 'not available'}",
            why="only main memory and the memory of CUDA GPUs can be asked for their limits",
            fix='leave `device` out for main memory, or name a GPU that torch sees, such as "cuda:0"',
        )
    if str(device) == "cuda":  # not all of torch takes it
        device = torch.device("cuda", torch.cuda.current_device())
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total)
    left = min(free - RESERVE, allowed - reserved)
    name = torch.cuda.get_device_name(device)
    source = (
        f"{name}: {in_words(free)} of {in_words(total)} free, {in_words(RESERVE)} of it left to the driver; torch's "
        f"allocator has {in_words(reserved)} and may have {in_words(allowed)}"
    )
    return reserved, Room(left, total, "GPU memory", source)
