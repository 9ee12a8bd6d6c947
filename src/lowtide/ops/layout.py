"""Where the rows of each chunk of time steps lie, for every layout that a stack takes and for both directions.

A layout cuts a sequence tensor into chunks and says for each chunk, in one direction, which of the tensor's rows belong
to it. Direction 1 walks back in time: chunk 0 then starts at the end of every sequence. Nothing whole is ever copied;
what a slice cannot express is gathered a chunk at a time.

    dense   (T, B, width), any strides: a chunk is a slice of steps, turned round for direction 1
    packed  (rows, width) of a PackedSequence: a slice of rows, or the rows that reverse each sequence
    padded  (T, B, width) with lengths: gathered into packed rows, longest sequence first

Dropout masks number the rows as they lie in the tensor; for padded ones, as they would lie if it were packed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from lowtide.ops.dropout import apply_mask, apply_mask_at
from lowtide.ops.fused import State

Index = slice | Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Chunk:
    """The rows of some consecutive steps, in one direction."""

    index: Index
    """Where they are in a tensor of the layout."""
    row_numbers: int | Tensor
    """Their numbers, as dropout masks count: the first one's where they follow each other."""
    sequences: int
    """How many sequences reach into this chunk: the first ones in the layout's order."""
    batch_sizes: Tensor | None = None
    """Of packed rows. None for (steps, sequences, width)."""
    turned: bool = False
    """Whether what `take` gives must be turned round to be in the direction's order."""

    def take(self, tensor: Tensor) -> Tensor:
        """The chunk's rows of a whole tensor, in the tensor's order; a view where that is possible."""
        return tensor[self.index]

    def put(self, tensor: Tensor, rows: Tensor, *, add: bool = False) -> None:
        """Write rows as `take` gives them into a whole tensor, or add them to it."""
        tensor[self.index] = tensor[self.index] + rows if add else rows

    def active(self, state: State) -> State:
        """The states of the sequences that reach into this chunk."""
        return tuple(part[:, : self.sequences] for part in state)

    def merge(self, active: State, whole: State) -> State:
        """The states of all sequences, new ones for those that reach into this chunk."""
        pairs = zip(active, whole, strict=True)
        return tuple(
            new if self.sequences == old.shape[1] else torch.cat([new, old[:, self.sequences :].to(new.dtype)], 1)
            for new, old in pairs
        )

    def turn(self, rows: Tensor) -> Tensor:
        """From the tensor's order to the direction's, and back."""
        return rows.flip(0) if self.turned else rows

    def drop(self, rows: Tensor, mask: Tensor, p: float) -> Tensor:
        """Apply a dropout mask of the whole tensor to rows as `take` gives them."""
        if isinstance(self.row_numbers, int):
            return apply_mask(mask, self.row_numbers, rows, p)
        return apply_mask_at(mask, self.row_numbers, rows, p)


class Layout(ABC):
    """A way that the rows of all sequences lie in one tensor, cut into chunks of time steps."""

    covers = True
    """Whether the chunks of one direction hold every row between them; False where there is padding."""

    def __init__(self, *, steps: int, rows: int, chunk_steps: int) -> None:
        """Of `steps` steps to be walked, which hold `rows` rows; padding counts in neither."""
        self.rows = rows
        self.chunk_steps = chunk_steps
        self.chunks = -(-steps // chunk_steps)

    @abstractmethod
    def chunk(self, number: int, direction: int) -> Chunk:
        """The chunk of that number, in the order in which the direction comes by."""


class Dense(Layout):
    """(T, B, width), every sequence T steps long."""

    def __init__(self, steps: int, sequences: int, chunk_steps: int) -> None:
        """For tensors of `steps` by `sequences`."""
        super().__init__(steps=steps, rows=steps * sequences, chunk_steps=chunk_steps)
        self.steps = steps
        self.sequences = sequences

    def chunk(self, number: int, direction: int) -> Chunk:
        """A slice of steps."""
        start = number * self.chunk_steps
        stop = min(start + self.chunk_steps, self.steps)
        if direction == 1:
            start, stop = self.steps - stop, self.steps - start
        return Chunk(slice(start, stop), start * self.sequences, self.sequences, turned=direction == 1)


class Packed(Layout):
    """(rows, width): the data of a PackedSequence, step after step, each with the sequences that reach it."""

    def __init__(self, batch_sizes: Tensor, chunk_steps: int, device: torch.device) -> None:
        """For the data that goes with `batch_sizes`."""
        super().__init__(steps=len(batch_sizes), rows=int(batch_sizes.sum()), chunk_steps=chunk_steps)
        self.batch_sizes = batch_sizes
        self.device = device
        self.first_rows = batch_sizes.cumsum(0) - batch_sizes
        self.lengths = _steps_reaching(batch_sizes)

    def chunk(self, number: int, direction: int) -> Chunk:
        """A slice of rows; back in time, the rows that reverse each sequence."""
        start = number * self.chunk_steps
        sizes = self.batch_sizes[start : start + self.chunk_steps]
        if direction == 0:
            first = int(self.first_rows[start])
            return Chunk(slice(first, first + int(sizes.sum())), first, int(sizes[0]), sizes)
        time, sequence = _members(start, sizes, self.lengths)
        numbers = (self.first_rows[time] + sequence).to(self.device)
        return Chunk(numbers, numbers, int(sizes[0]), sizes)


class Padded(Layout):
    """(T, B, width) with a length for each sequence; chunks hold packed rows of the sequences in `order`."""

    covers = False

    def __init__(self, lengths: Tensor, chunk_steps: int, device: torch.device) -> None:
        """For tensors of len(lengths) sequences."""
        self.order = lengths.argsort(descending=True, stable=True)
        """The sequences from the longest to the shortest."""
        self.lengths = lengths[self.order]
        """In that order."""
        self.batch_sizes = (self.lengths > torch.arange(int(self.lengths[0]))[:, None]).sum(1)
        self.first_rows = self.batch_sizes.cumsum(0) - self.batch_sizes
        self.device = device
        super().__init__(steps=len(self.batch_sizes), rows=int(lengths.sum()), chunk_steps=chunk_steps)

    def chunk(self, number: int, direction: int) -> Chunk:
        """The valid steps of every sequence, gathered as packed rows."""
        start = number * self.chunk_steps
        sizes = self.batch_sizes[start : start + self.chunk_steps]
        time, sequence = _members(start, sizes, self.lengths if direction == 1 else None)
        index = (time.to(self.device), self.order[sequence].to(self.device))
        first = int(self.first_rows[start])
        numbers = first if direction == 0 else (self.first_rows[time] + sequence).to(self.device)
        return Chunk(index, numbers, int(sizes[0]), sizes)


def lay_out(inputs: Tensor, batch_sizes: Tensor | None, lengths: Tensor | None, chunk_steps: int) -> Layout:
    """The layout of a stack's inputs."""
    if batch_sizes is not None:
        return Packed(batch_sizes, chunk_steps, inputs.device)
    if lengths is not None:
        return Padded(lengths, chunk_steps, inputs.device)
    return Dense(inputs.shape[0], inputs.shape[1], chunk_steps)


def _members(start: int, batch_sizes: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Time and sequence of each packed row of a chunk from step `start` on; back in time where `lengths` are given."""
    step, sequence = (torch.arange(int(batch_sizes[0])) < batch_sizes[:, None]).nonzero(as_tuple=True)
    return start + step if lengths is None else lengths[sequence] - 1 - (start + step), sequence


def _steps_reaching(batch_sizes: Tensor) -> Tensor:
    """How many steps each sequence has, from how many sequences each step has."""
    return torch.bincount(batch_sizes).flip(0).cumsum(0).flip(0)[1:]
