"""A model as a stream calls it: on a chunk of inputs, with the states of the chunk before, under a batch context.

Lean layers, `Pool`, `CausalConv1d` and whatever else uses `carry_in` and `carry_out` carry their states themselves. A
forward that takes a state as an argument and returns (outputs, state) is given its own state back; then that argument
is the state of the layers inside it, and they carry nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.nn._carry import Carry, Finished, NoCarry, Slot, State
from lowtide.nn._context import BatchContext, running
from lowtide.nn._layer import LeanLayer
from lowtide.ops.autocast import AutocastState, under
from lowtide.ops.spec import Keep
from lowtide.step._own_state import OwnState
from lowtide.step._sequence import Data
from lowtide.step._signature import STATIC, Call, Signature

_FORWARD = "forward"
"""The name of the forward's own state among saved ones."""


class WholeCarry(NoCarry):
    """Of sequences that run whole: nothing arrives, and nothing is handed on."""

    arriving: Mapping[Slot, State] = MappingProxyType({})
    leaving: Mapping[Slot, State] = MappingProxyType({})


@dataclass(frozen=True)
class Result:
    """What a model made of a chunk."""

    outputs: Any
    """None where only the states were wanted."""
    leaving: Mapping[Slot, State]


@dataclass(frozen=True)
class Manner:
    """How a model treats states, as far as it was found out by running it."""

    state_name: str | None
    """The argument of the forward that takes its own state; None where the modules inside carry all there is."""
    within_steps: frozenset[Slot] = frozenset()
    """Calls that run inside of single time steps, as a layer over the letters of each word does."""


class StreamedModel:
    """A module, and how its forward wants to be called."""

    def __init__(self, module: nn.Module) -> None:
        """Look at the forward's signature."""
        self.module = module
        self.signature = Signature(module)
        self.own_state = OwnState()
        self.manner = Manner(self.signature.state)

    @property
    def passes_state(self) -> bool:
        """Whether the forward takes and returns a state."""
        return self.manner.state_name is not None

    def carry(
        self,
        arriving: Mapping[Slot, State],
        *,
        fresh: Tensor | None = None,
        on_leave: Callable[[int], None] = lambda _: None,
    ) -> Carry:
        """What the next chunk begins with; the arguments are those of `Carry`."""
        within = self.manner.within_steps
        return Carry(arriving, fresh=fresh, within_steps=within, on_leave=on_leave)

    def name_of(self, slot: Slot) -> str:
        """How a slot is called in a saved state."""
        if slot == self.own_state.slot:
            return _FORWARD
        names = {module: name for name, module in self.module.named_modules()}
        if slot.module not in names:
            raise LowtideError(
                what=f"a {type(slot.module).__name__} carries a state and is no part of {type(self.module).__name__}",
                why="a state is saved by the name of its module",
                fix="make it an attribute of the model, or keep it in a torch.nn.ModuleList or ModuleDict",
            )
        return f"{names[slot.module]}:{slot.call}"

    def slot_of(self, name: str, state: Data) -> tuple[Slot, State]:
        """The slot of that name, and its state, as they are carried."""
        if name == _FORWARD:
            self.own_state.remember(state)
            return self.own_state.slot, self.own_state.parts(state)
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
        return self.own_state.restored(state) if slot == self.own_state.slot else state

    def run(
        self,
        inputs: Data,
        carry: Carry | WholeCarry,
        *,
        steps: int,
        batch: int,
        lengths: Tensor | None = None,
        keep: Keep | None = None,
        static: Data = None,
        autocast: AutocastState | None = None,
        check: bool = False,
    ) -> Result:
        """Run the forward on a chunk.

        Args:
            inputs: What the model is given, `steps` steps of it.
            carry: What arrives from the chunk before; afterwards it holds what goes on to the next. Whole sequences
                have none.
            steps: Time steps of the chunk.
            batch: Sequences.
            lengths: Valid steps of each sequence in the chunk; None where all are valid.
            keep: What lean layers keep for the backward pass.
            static: What the forward is given once a sequence, if it has an argument of that name.
            autocast: What autocast was set to where the step was called; None: as it is.
            check: Whether to refuse inputs that do not fit the forward's signature.
        """
        if lengths is not None and bool((lengths == steps).all()):
            lengths = None
        beside = frozenset({STATIC}) if self.signature.takes_static and static is not None else frozenset[str]()
        positional, named = self.signature.call(inputs, beside=beside)
        if beside:
            named.setdefault(STATIC, static)
        if self.signature.takes_lengths and "lengths" not in named:
            named["lengths"] = torch.full((batch,), steps) if lengths is None else lengths
        self._add_state(named, carry, batch)
        context = BatchContext(lengths=lengths, steps=steps, carry=carry, keep=keep, passes_state=self.passes_state)
        if check:
            self.signature.check(Call(positional, named))
        outputs: Any = None
        with running(context), under(autocast), suppress(Finished):
            outputs = self._without_state(self.module(*positional, **named), carry)
        return Result(outputs, carry.leaving)

    def _add_state(self, named: dict[str, Any], carry: Carry | WholeCarry, batch: int) -> None:
        name = self.manner.state_name
        if name is None:
            return
        if name in named:  # the data bring it
            self.manner = replace(self.manner, state_name=None)
        elif self.own_state.slot in carry.arriving:
            assert isinstance(carry, Carry)
            named[name] = self.own_state.take(carry, batch)
        elif self.signature.requires(name):
            named[name] = None

    def _without_state(self, result: Any, carry: Carry | WholeCarry) -> Any:  # noqa: ANN401 - whatever a model returns
        has_state = self.own_state.found_in(result)
        if isinstance(self.module, LeanLayer):
            return result[0] if has_state else result
        if not self.passes_state:
            return result
        if not has_state:  # it takes one and returns none: the layers inside carry theirs
            self.manner = replace(self.manner, state_name=None)
            return result
        outputs, state = result
        self.own_state.leave(state, carry)
        return outputs
