"""Where the states at chunk starts lie between the two passes: one row of bytes a chunk, in memory or on disk.

Rows are preallocated, so memory does not creep up while a long sequence runs. One row for every chunk is the fastest.
Where all rows together would exceed `MOST_IN_MEMORY` and disk is not wanted or not there, states are kept at the start
of every S-th chunk only, and the second pass computes those between again, S chunks at a time: with S = sqrt(N), 2
sqrt(N) rows for N chunks and one more forward pass (Chen et al. 2016, arXiv:1604.06174; Griewank and Walther's
logarithmic schedule needs fewer rows and more passes, which no length met here repays).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from tempfile import gettempdir
from typing import Literal

import torch
from torch import Tensor

from lowtide.memory.scratch import map_scratch, why_no_scratch

Place = Literal["memory", "disk", "auto"]

MOST_IN_MEMORY = 32 << 20
"""Bytes of boundary states up to which every chunk's are kept in memory: little beside the graph of one chunk."""

_ALIGNMENT = 16


@dataclass(frozen=True)
class RowLayout:
    """Where the tensors of one chunk's start lie in its row."""

    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]
    devices: tuple[torch.device, ...]
    offsets: tuple[int, ...]
    row_bytes: int

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> RowLayout:
        """The layout for tensors like these."""
        offsets, end = [], 0
        for tensor in tensors:
            offsets.append(end)
            end += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        return RowLayout(
            tuple(tensor.shape for tensor in tensors),
            tuple(tensor.dtype for tensor in tensors),
            tuple(tensor.device for tensor in tensors),
            tuple(offsets),
            end,
        )

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these tensors have the shapes and types that the row was laid out for."""
        return [(tensor.shape, tensor.dtype) for tensor in tensors] == list(zip(self.shapes, self.dtypes, strict=True))


class Rows:
    """Preallocated rows, the numbers of their chunks counted from `first`."""

    def __init__(self, layout: RowLayout, memory: Tensor) -> None:
        """Use `memory`, (rows, row bytes) of uint8."""
        self._layout = layout
        self._memory = memory

    @staticmethod
    def in_memory(layout: RowLayout, rows: int, folder: Path | None = None) -> Rows:  # noqa: ARG004 - as on_disk
        """Rows beside the states: on the GPU where these are."""
        device = layout.devices[0] if layout.devices else torch.device("cpu")
        return Rows(layout, torch.empty(rows, layout.row_bytes, dtype=torch.uint8, device=device))

    @staticmethod
    def on_disk(layout: RowLayout, rows: int, folder: Path | None) -> Rows:
        """Rows in a nameless file, mapped."""
        mapped = map_scratch(max(1, rows * layout.row_bytes), folder)
        memory = torch.frombuffer(mapped, dtype=torch.uint8)[: rows * layout.row_bytes]
        return Rows(layout, memory.view(rows, layout.row_bytes))

    def save(self, row: int, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors into a row."""
        for number, tensor in enumerate(tensors):
            self._view(row, number).copy_(tensor)

    def load(self, row: int) -> list[Tensor]:
        """Copy a row's tensors out, onto the devices they came from."""
        copies = [self._view(row, number).clone() for number in range(len(self._layout.shapes))]
        return [copy.to(device) for copy, device in zip(copies, self._layout.devices, strict=True)]

    def _view(self, row: int, number: int) -> Tensor:
        layout = self._layout
        start, dtype, shape = layout.offsets[number], layout.dtypes[number], layout.shapes[number]
        return self._memory[row, start : start + shape.numel() * dtype.itemsize].view(dtype).view(shape)


@dataclass(frozen=True)
class Schedule:
    """Which chunks' starts are kept throughout, and where."""

    chunks: int
    """Chunks whose starts are wanted in the second pass."""
    segment: int
    """Chunks from one start kept throughout to the next; 1: every start is kept."""
    on_disk: bool
    folder: Path | None

    @property
    def segments(self) -> int:
        """Starts kept throughout."""
        return -(-self.chunks // self.segment)


def choose_schedule(place: Place, folder: Path | None, *, chunks: int, row_bytes: int) -> Schedule:
    """Keep every start in memory where that is little, else go to disk where one is, else keep every S-th."""
    together = chunks * row_bytes
    if place == "disk":
        return Schedule(chunks, 1, on_disk=True, folder=folder)
    if together <= MOST_IN_MEMORY:
        return Schedule(chunks, 1, on_disk=False, folder=folder)
    if place == "auto" and why_no_scratch(together, folder or Path(gettempdir())) is None:
        return Schedule(chunks, 1, on_disk=True, folder=folder)
    return Schedule(chunks, isqrt(chunks - 1) + 1, on_disk=False, folder=folder)
