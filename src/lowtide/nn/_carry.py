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
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lowtide.errors import LowtideError

State = tuple[Tensor, ...]


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
        sequences: int | None = None,
        fresh: Tensor | None = None,
        on_leave: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Begin a chunk.

        Args:
            arriving: What the chunk before left; empty at a sequence's start.
            sequences: B, which states that arrive must be of; None where they come from the chunk before.
            fresh: (B,) true for the lanes that begin a new sequence here, whatever arrives.
            on_leave: Called with the number of states left so far; may raise `Finished`.
        """
        self.arriving = arriving
        self.leaving: dict[Slot, State] = {}
        self._sequences = sequences
        self._fresh = fresh
        self._on_leave = on_leave
        self._taken: Counter[torch.nn.Module] = Counter()
        self._left: Counter[torch.nn.Module] = Counter()

    def take(self, module: torch.nn.Module, initial: State, batch_axis: int) -> State:
        """The state that a module begins this chunk with."""
        slot = Slot(module, self._taken[module])
        self._taken[module] += 1
        if slot in self.arriving:
            self._check_batch(self.arriving[slot], batch_axis)
            return self._refreshed(self.arriving[slot], initial, batch_axis)
        if self.arriving:
            raise LowtideError(
                what=f"{type(module).__name__} asks for a state that it did not leave at the chunk before.",
                why="A module whose calls differ from chunk to chunk cannot take up what it left.",
                fix="Call carry_in and carry_out as often in every forward, whatever the number of time steps.",
            )
        return initial

    def leave(self, module: torch.nn.Module, state: State) -> None:
        """Hand a module's state to the next chunk."""
        self.leaving[Slot(module, self._left[module])] = state
        self._left[module] += 1
        self._on_leave(len(self.leaving))

    def _check_batch(self, arrived: State, batch_axis: int) -> None:
        for part in arrived:
            if self._sequences is not None and part.shape[batch_axis] != self._sequences:
                raise LowtideError(
                    what=f"the carried state is of {part.shape[batch_axis]} sequences, the batch of {self._sequences}",
                    why="each lane goes on where it ended",
                    fix="give as many lanes at every call, or begin anew: step.reset()",
                )

    def _refreshed(self, arrived: State, initial: State, batch_axis: int) -> State:
        if self._fresh is None:
            return arrived
        begins = initial or tuple(torch.zeros_like(part) for part in arrived)
        return tuple(
            torch.where(_along(self._fresh.to(old.device), old, batch_axis), new, old)
            for new, old in zip(begins, arrived, strict=True)
        )


class ClosedCarry:
    """While gradients are computed: a forward that runs again there knows no chunk to take its state from."""

    def take(self, module: torch.nn.Module, initial: State, batch_axis: int) -> State:  # noqa: ARG002 - as Carry's
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

    def take(self, module: torch.nn.Module, initial: State, batch_axis: int) -> State:  # noqa: ARG002 - as Carry's
        """The initial state."""
        return initial

    def leave(self, module: torch.nn.Module, state: State) -> None:
        """Drop the state."""


def _along(lanes: Tensor, like: Tensor, axis: int) -> Tensor:
    return lanes.view(*(-1 if number == axis else 1 for number in range(like.dim())))
