"""How a forward wants to be called: which of its arguments are data, and which lengths or a state."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from lowtide.errors import LowtideError
from lowtide.nn._layer import LeanLayer
from lowtide.step._sequence import Data

STATE_NAMES = frozenset(
    {"state", "states", "initial_state", "init_state", "prev_state", "previous_state", "last_state"}
    | {"hidden", "hiddens", "hidden_state", "hidden_states", "prev_hidden", "last_hidden", "h", "h0", "h_0", "hx"}
    | {"hc", "c", "c0", "c_0", "cx", "cell", "cell_state", "carry", "memory", "rnn_state", "lstm_state", "gru_state"}
)
"""Names of arguments that are taken for a state, unless the data bring them."""
STATIC = "static"
"""The name of the argument that takes what a batch has once a sequence."""


class Call(NamedTuple):
    """Arguments of one call."""

    positional: list[Any]
    named: dict[str, Any]


class Signature:
    """A forward's arguments."""

    def __init__(self, module: nn.Module) -> None:
        """Look at a module's forward."""
        self._signature = inspect.signature(module.forward)
        parameters = list(self._signature.parameters.values())
        self.text = f"forward({', '.join(str(one.replace(annotation=one.empty)) for one in parameters)})"
        by_position = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        self._names = {one.name for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}}
        self._takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        self._takes_any_name = any(one.kind is one.VAR_KEYWORD for one in parameters)
        later = [one.name for one in parameters[1:]]
        if isinstance(module, LeanLayer):  # it carries its state itself, and knows the lengths
            later, by_position = [], by_position[:1]
        self.states = [name for name in later if name in STATE_NAMES]
        """Arguments that look like states."""
        self.takes_lengths = "lengths" in later
        self.takes_static = STATIC in later
        """Whether it wants what a batch has once a sequence."""
        self._required = {one.name for one in by_position if one.default is one.empty}
        self._by_position = [one.name for one in by_position if one.name != "lengths"]
        self._data = [name for name in self._by_position if name not in self.states]

    @property
    def state(self) -> str | None:
        """The argument that takes the forward's state; None where there is none, or several that share one."""
        return self.states[0] if len(self.states) == 1 else None

    def requires(self, name: str) -> bool:
        """Whether the forward cannot be called without an argument."""
        return name in self._required

    def call(self, inputs: Data, *, beside: frozenset[str] = frozenset()) -> Call:
        """A dictionary goes to arguments by its names, a tuple to as many as there are, all else to the first.

        Args:
            inputs: What the data bring.
            beside: Names of arguments that are given otherwise.
        """
        if isinstance(inputs, Mapping):
            fits = set(inputs) <= self._names or (self._takes_any_name and self._required <= set(inputs))
            return Call([], dict(inputs)) if fits and inputs else Call([inputs], {})
        if isinstance(inputs, (tuple, list)) and len(inputs) > 1:
            data = [name for name in self._data if name not in beside]
            required = [name for name in self._by_position if name in self._required - beside]
            for names, least in ((data, len(self._required & set(data))), (required, len(required))):
                if least <= len(inputs) <= len(names):
                    named = {name: part for name, part in zip(names, inputs, strict=False) if name in self._names}
                    return Call(list(inputs[: len(inputs) - len(named)]), named)
            if self._takes_any:
                return Call(list(inputs), {})
        return Call([inputs], {})

    def check(self, call: Call) -> None:
        """Refuse arguments that the forward does not take.

        Raises:
            LowtideError: It names the signature.
        """
        try:
            self._signature.bind(*call.positional, **call.named)
        except TypeError as error:
            raise LowtideError(
                what=f"{self.text} cannot be called with these inputs: {error}",
                why="the inputs of a step are the arguments of the forward; lengths and one state are added to them",
                fix="give a tuple with one part for each argument, or a dictionary by the arguments' names",
            ) from error
