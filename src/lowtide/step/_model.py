"""A model as a stream calls it: on a chunk of inputs, with the states of the chunk before, under a batch context.

Lean layers, `Pool`, `CausalConv1d` and whatever else uses `carry_in` and `carry_out` carry their states themselves. A
forward that takes a state as an argument and returns (outputs, state) is given its own state back; then that argument
is the state of the layers inside it, and they carry nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.nn._carry import Carry, Finished, Slot, State
from lowtide.nn._context import BatchContext, running
from lowtide.nn._layer import LeanLayer
from lowtide.ops.autocast import AutocastState, under
from lowtide.ops.spec import Keep
from lowtide.step._sequence import Data, leaves, map_leaves

_STATE_NAMES = ("state", "states", "hx", "hidden", "hidden_state", "hidden_states", "h0", "initial_state")
_PAIR = 2


@dataclass(frozen=True)
class Result:
    """What a model made of a chunk."""

    outputs: Any
    """None where only the states were wanted."""
    leaving: Mapping[Slot, State]


class StreamedModel:
    """A module, and how its forward wants to be called."""

    def __init__(self, module: nn.Module) -> None:
        """Look at the forward's signature."""
        self.module = module
        parameters = inspect.signature(module.forward).parameters
        self._names = [name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
        self._required = [
            name
            for name, one in parameters.items()
            if one.default is one.empty and one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}
        ]
        self._state_name = None
        if not isinstance(module, LeanLayer):
            self._state_name = next((name for name in self._names[1:] if name in _STATE_NAMES), None)
        self._takes_lengths = "lengths" in self._names[1:] and not isinstance(module, LeanLayer)
        self._own_slot = Slot(nn.Identity(), 0)
        self._template: Data = None
        """A state of the forward's own, for its structure."""

    @property
    def passes_state(self) -> bool:
        """Whether the forward takes and returns a state."""
        return self._state_name is not None

    def name_of(self, slot: Slot) -> str:
        """How a slot is called in a saved state."""
        if slot == self._own_slot:
            return "forward"
        names = {module: name for name, module in self.module.named_modules()}
        return f"{names[slot.module]}:{slot.call}"

    def slot_of(self, name: str, state: Data) -> tuple[Slot, State]:
        """The slot of that name, and its state, as they are carried."""
        if name == "forward":
            self._template = state
            return self._own_slot, tuple(leaves(state))
        path, _, call = name.rpartition(":")
        modules = dict(self.module.named_modules())
        if path not in modules:
            raise LowtideError(
                what=f"the state holds {name!r}, and the model has no module {path!r}",
                why="a state belongs to the model that it was carried in",
                fix="give the state of a model built the same way, or None to begin anew",
            )
        return Slot(modules[path], int(call)), tuple(state)

    def saved(self, slot: Slot, state: State) -> Data:
        """A slot's state as it is saved: the forward's own in its own structure."""
        return self._restored(state) if slot == self._own_slot else state

    def run(
        self,
        inputs: Data,
        carry: Carry,
        *,
        steps: int,
        batch: int,
        lengths: Tensor | None = None,
        keep: Keep | None = None,
        autocast: AutocastState | None = None,
    ) -> Result:
        """Run the forward on a chunk.

        Args:
            inputs: What the model is given, `steps` steps of it.
            carry: What arrives from the chunk before; afterwards it holds what goes on to the next.
            steps: Time steps of the chunk.
            batch: Sequences.
            lengths: Valid steps of each sequence in the chunk; None where all are valid.
            keep: What lean layers keep for the backward pass.
            autocast: What autocast was set to where the step was called.
        """
        if lengths is not None and bool((lengths == steps).all()):
            lengths = None
        context = BatchContext(lengths=lengths, steps=steps, carry=carry, keep=keep, passes_state=self.passes_state)
        positional, named = self._arguments(inputs)
        if self._takes_lengths:
            named["lengths"] = torch.full((batch,), steps) if lengths is None else lengths
        if self._state_name is not None and self._own_slot in carry.arriving:
            named[self._state_name] = self._restored(carry.take(self._own_slot.module, (), 0))
        outputs: Any = None
        with running(context), under(autocast), suppress(Finished):
            outputs = self._without_state(self.module(*positional, **named), carry)
        return Result(outputs, carry.leaving)

    def _arguments(self, inputs: Data) -> tuple[list[Any], dict[str, Any]]:
        if isinstance(inputs, Mapping) and set(inputs) <= set(self._names) and len(self._required) > 0:
            return [], dict(inputs)
        if isinstance(inputs, (tuple, list)) and len(self._required) == len(inputs) > 1:
            return list(inputs), {}
        return [inputs], {}

    def _without_state(self, result: Any, carry: Carry) -> Any:  # noqa: ANN401 - whatever a model returns
        is_pair = isinstance(result, tuple) and len(result) == _PAIR and result[1] is not None
        if isinstance(self.module, LeanLayer) and is_pair:
            return result[0]
        if self._state_name is None:
            return result
        if not is_pair:  # it takes one and returns none: the layers inside carry theirs
            self._state_name = None
            return result
        outputs, state = result
        self._template = map_leaves(lambda _: None, state)
        carry.leave(self._own_slot.module, tuple(leaves(state)))
        return outputs

    def _restored(self, state: State) -> Data:
        parts: Iterator[Tensor] = iter(state)
        return map_leaves(lambda _: next(parts), self._template)
