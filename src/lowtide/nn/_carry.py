"""States that modules hand from one chunk of a long sequence to the next: the protocol, and what keeps them.

A module that remembers something from step to step takes part in streaming with two calls in its forward:

```python
class Smoothed(torch.nn.Module):
    def forward(self, x):  # (T, B, F)
        (level,) = lowtide.nn.carry_in(self, (x.new_zeros(x.shape[1:]),))
        rows = []
        for row in x:
            level = 0.9 * level + 0.1 * row
            rows.append(level)
        lowtide.nn.carry_out(self, (level,))
        return torch.stack(rows)
```

At the first chunk `carry_in` gives back the initial state, at every later one what `carry_out` took at the end of the
chunk before. Gradients flow through both. Outside of a stream nothing is carried: the same forward then sees the whole
sequence at once. A module that is called several times in one forward has a state for each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lowtide.errors import LowtideError

State = tuple[Tensor, ...]
Axes = Sequence[int | None]
"""Where the sequences lie in each tensor of a state; None where all sequences share it."""


class Slot(NamedTuple):
    """Whose state: a module, and the how-manieth call of it within one forward."""

    module: torch.nn.Module
    call: int


class Finished(BaseException):
    """Ends a forward of which the states alone were wanted; no `except Exception` shall hold it up."""


class Carry:
    """What one chunk receives from its left neighbour and leaves to its right one. Made anew for each forward."""

    def __init__(
        self,
        arriving: Mapping[Slot, State],
        *,
        fresh: Tensor | None = None,
        within_steps: Collection[Slot] = (),
        on_leave: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Begin a chunk.

        Args:
            arriving: What the chunk before left; empty at a sequence's start.
            fresh: (B,) true for the lanes that begin a new sequence here, whatever arrives.
            within_steps: Calls that run along something else than time, inside of each step: they carry nothing.
            on_leave: Called with the number of states left so far; may raise `Finished`.
        """
        self.arriving = arriving
        self.leaving: dict[Slot, State] = {}
        self._fresh = fresh
        self._within_steps = within_steps
        self._on_leave = on_leave
        self._taken: Counter[torch.nn.Module] = Counter()
        self._left: Counter[torch.nn.Module] = Counter()

    def take(self, module: torch.nn.Module, initial: State, batch_axes: Axes) -> State:
        """The state that a module begins this chunk with, its own to work on in place."""
        slot = Slot(module, self._taken[module])
        self._taken[module] += 1
        if slot in self._within_steps or not self.arriving:
            return initial
        if slot not in self.arriving:
            raise LowtideError(
                what=f"{type(module).__name__} asks for a state that it did not leave at the chunk before.",
                why="A module whose calls differ from chunk to chunk cannot take up what it left.",
                fix="Call carry_in and carry_out as often in every forward, whatever the number of time steps.",
            )
        arrived = self.arriving[slot]
        if len(arrived) != len(initial):
            raise LowtideError(
                what=f"{type(module).__name__} left {len(arrived)} tensors and begins with {len(initial)}.",
                why="What it leaves is what it takes up, tensor by tensor.",
                fix="Give carry_out as many tensors as carry_in gives back.",
            )
        _check_batch(arrived, initial, batch_axes)
        if self._fresh is None:
            return tuple(part.clone() for part in arrived)
        return tuple(
            torch.where(_along(self._fresh.to(old.device), old, axis), new.to(old.dtype), old)
            for new, old, axis in zip(initial, arrived, batch_axes, strict=True)
        )

    def leave(self, module: torch.nn.Module, state: State) -> None:
        """Hand a module's state to the next chunk."""
        slot = Slot(module, self._left[module])
        self._left[module] += 1
        if slot in self._within_steps:
            return
        self.leaving[slot] = state
        self._on_leave(len(self.leaving))


class ClosedCarry:
    """While gradients are computed: a forward that runs again there knows no chunk to take its state from."""

    def take(self, module: torch.nn.Module, initial: State, batch_axes: Axes) -> State:  # noqa: ARG002 - as Carry's
        """Refuse."""
        raise LowtideError(
            what=f"the forward of {type(module).__name__} ran again inside a backward pass.",
            why="torch.utils.checkpoint recomputes there, where the states that a stream carries are not known.",
            fix="Leave out the checkpointing around layers that carry states: a stream keeps one chunk's graph alone.",
        )

    def leave(self, module: torch.nn.Module, state: State) -> None:
        """Nothing: `take` came before."""


class NoCarry:
    """Outside of a stream: every sequence is whole."""

    def take(self, module: torch.nn.Module, initial: State, batch_axes: Axes) -> State:  # noqa: ARG002 - as Carry's
        """The initial state."""
        return initial

    def leave(self, module: torch.nn.Module, state: State) -> None:
        """Drop the state."""


def _check_batch(arrived: State, initial: State, batch_axes: Axes) -> None:
    for old, new, axis in zip(arrived, initial, batch_axes, strict=True):
        if axis is not None and old.shape[axis] != new.shape[axis]:
            raise LowtideError(
                what=f"the carried state is of {old.shape[axis]} sequences, the batch of {new.shape[axis]}",
                why="each lane goes on where it ended",
                fix="give as many lanes at every call, or begin anew: step.reset()",
            )


def _along(lanes: Tensor, like: Tensor, axis: int | None) -> Tensor:
    if axis is None or like.shape[axis] != len(lanes):
        raise LowtideError(
            what=f"a carried tensor of shape {tuple(like.shape)} does not hold one part for each of {len(lanes)} lanes",
            why="single lanes cannot begin anew in it",
            fix="begin anew with all of them, step.reset(), or carry one part for each sequence",
        )
    return lanes.view(*(-1 if number == axis else 1 for number in range(like.dim())))
