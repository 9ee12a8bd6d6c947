"""What a step tells the layers while it runs: each sequence's valid steps, and what lies left of a chunk.

A step of `lowtide.step` puts a context in force around the model's forward. Lean layers and `Pool` read it, so that
`forward(x)` needs neither a lengths nor a state argument. A context belongs to a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lowtide.nn._carry import Carry, ClosedCarry, NoCarry, State
from lowtide.ops.spec import Keep


@dataclass(frozen=True)
class BatchContext:
    """One forward of a model on a batch, or on a chunk of its steps."""

    lengths: Tensor | None = None
    """(B,) int64 on the CPU: valid steps of each sequence among those given; None where all are valid."""
    steps: int = 0
    """Time steps that the model is given."""
    carry: Carry | ClosedCarry | NoCarry = field(default_factory=NoCarry)
    keep: Keep | None = None
    """What lean layers keep instead of what they were told, because the step knows better."""
    passes_state: bool = False
    """Whether the model's forward takes and returns its states by itself, as arguments."""

    @property
    def streams(self) -> bool:
        """Whether states are carried from chunk to chunk."""
        return not isinstance(self.carry, NoCarry)

    def lengths_of(self, steps: int, batch: int) -> Tensor | None:
        """The lengths of a padded batch of this size; None for data of another size, which they do not describe."""
        if self.lengths is None or steps != self.steps or batch != len(self.lengths):
            return None
        return self.lengths


_NOTHING = BatchContext()
_of_thread = threading.local()


def current_context() -> BatchContext:
    """The context in force; an empty one outside of a step, and in a graph that torch.compile records."""
    if torch.compiler.is_compiling():
        return _NOTHING
    context: BatchContext = getattr(_of_thread, "context", _NOTHING)
    return context


@contextmanager
def running(context: BatchContext) -> Iterator[None]:
    """Put a context in force."""
    before = getattr(_of_thread, "context", _NOTHING)
    _of_thread.context = context
    try:
        yield
    finally:
        _of_thread.context = before


def carry_in(module: torch.nn.Module, initial: State = (), *, batch_axis: int = 0) -> State:
    """Take up the state that `module` left at the end of the chunk before.

    Args:
        module: The module that calls, `self`.
        initial: The state at a sequence's start, a tuple of tensors; given back at the first chunk and outside of a
            stream. Empty: nothing is known then, and what is carried later begins with zeros.
        batch_axis: Where the sequences lie in each of the tensors.
    """
    return current_context().carry.take(module, initial, batch_axis)


def carry_out(module: torch.nn.Module, state: State) -> None:
    """Leave a state for the next chunk: a tuple of tensors of the same shapes and types at every chunk.

    Args:
        module: The module that calls, `self`.
        state: What its next `carry_in` gives back.
    """
    current_context().carry.leave(module, state)
