"""What torch's CUDA allocator holds and held, where torch is loaded and has used a GPU. Does not load it otherwise."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CudaPeak:
    """The highest that torch's allocator rose on one GPU, in bytes."""

    device: int
    allocated: int
    """In tensors."""
    reserved: int
    """Taken from the driver, for tensors and between them: what counts against the GPU's memory."""


@dataclass(eq=False)
class CudaTally:
    """The peaks of one block by device: allocated, reserved."""

    peaks: dict[int, tuple[int, int]] = field(default_factory=dict)


class CudaMarks:
    """The marks that torch keeps for each GPU, shared by every block that is being measured."""

    def __init__(self) -> None:
        """Start without blocks."""
        self._lock = threading.Lock()
        self._open: list[CudaTally] = []

    def open(self) -> CudaTally:
        """Set the marks back for a block that begins; those of blocks around it keep what was reached."""
        tally = CudaTally()
        with self._lock:
            self._add()
            for device in _devices():
                _cuda().reset_peak_memory_stats(device)
            self._open.append(tally)
        return tally

    def close(self, tally: CudaTally) -> tuple[CudaPeak, ...]:
        """End a block."""
        with self._lock:
            self._add()
            self._open.remove(tally)
        return tuple(CudaPeak(device, *peak) for device, peak in sorted(tally.peaks.items()))

    def _add(self) -> None:
        for device in _devices():
            allocated = int(_cuda().max_memory_allocated(device))
            reserved = int(_cuda().max_memory_reserved(device))
            for tally in self._open:
                before = tally.peaks.get(device, (0, 0))
                tally.peaks[device] = max(before[0], allocated), max(before[1], reserved)


MARKS = CudaMarks()
"""The ones there are."""


def _cuda() -> Any:  # noqa: ANN401 - torch.cuda, which must not be imported here
    return sys.modules["torch"].cuda


def _devices() -> range:
    """The GPUs that this process has used."""
    if "torch" not in sys.modules or not _cuda().is_initialized():
        return range(0)
    return range(_cuda().device_count())
