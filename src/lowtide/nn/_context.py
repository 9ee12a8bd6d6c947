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

from lowtide.errors import LowtideError
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


def carry_in(module: torch.nn.Module, initial: State, *, batch_axis: int = 0) -> State:
    """Take up the state that `module` left at the end of the chunk before.

    ```python
    class Differences(torch.nn.Module):
        def forward(self, x):  # (T, B, F)
            (before,) = lowtide.nn.carry_in(self, (x[0],))
            lowtide.nn.carry_out(self, (x[-1],))
            return x - torch.cat([before[None], x[:-1]])
    ```

    At a sequence's first chunk, and outside of a stream, the initial state comes back; at every later chunk what
    `carry_out` took at the end of the one before, and gradients flow from chunk to chunk through both. A module that is
    called several times in one forward has a state for each call.

    Args:
        module: The module that calls, `self`.
        initial: The state at a sequence's start, a tuple of tensors.
        batch_axis: Where the sequences lie in each of the tensors.
    """
    parts = _checked("carry_in", module, initial)
    return current_context().carry.take(module, parts, (batch_axis,) * len(parts))


def carry_out(module: torch.nn.Module, state: State) -> None:
    """Leave a state for the next chunk: the tensors that `carry_in` gave, of the same shapes and types at every chunk.

    Where sequences of a batch differ in length (`valid_lengths`), each one's state is that after its last valid step.

    Args:
        module: The module that calls, `self`.
        state: What its next `carry_in` gives back.
    """
    current_context().carry.leave(module, _checked("carry_out", module, state))


def valid_lengths(steps: int, batch: int) -> Tensor | None:
    """How many of `steps` time steps of each of `batch` sequences are valid, where a step runs and knows it.

    Modules that mix time use it to leave padding out of account:

    ```python
    lengths = lowtide.nn.valid_lengths(*x.shape[:2])  # x: (T, B, F)
    if lengths is not None:
        valid = torch.arange(len(x))[:, None] < lengths  # (T, B)
        x = torch.where(valid[..., None], x, 0)
    ```

    Args:
        steps: Time steps of the data at hand.
        batch: Sequences of the data at hand.

    Returns:
        (B,) int64 on the CPU; None where all steps are valid, outside of a step, and for data of other sizes than the
        model was given.
    """
    return current_context().lengths_of(steps, batch)


def _checked(call: str, module: object, state: object) -> State:
    """The state as a tuple.

    Raises:
        LowtideError: It is none, or not a module's.
    """
    parts = tuple(state) if isinstance(state, (tuple, list)) else ()
    if not parts or not isinstance(module, torch.nn.Module) or not all(isinstance(part, Tensor) for part in parts):
        found = f"({', '.join(type(part).__name__ for part in parts)})" if parts else type(state).__name__
        raise LowtideError(
            what=f"{call}({type(module).__name__}, {found})",
            why="a state belongs to a module and is carried, kept and differentiated tensor by tensor",
            fix=f"call {call}(self, (tensor, ...)): the module itself and a tuple of at least one tensor",
        )
    return parts
