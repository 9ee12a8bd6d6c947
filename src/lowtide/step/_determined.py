"""Random operators whose results do not depend on the draw, so that two runs of a model can be compared.

Switching a model to evaluation would silence its dropout, but also change what BatchNorm does, and leave noise that is
drawn in either mode. So operators themselves are replaced while a model is tried: each gives one value that it might
have drawn, the same at every step. These lie off centre (noise that is zero would hide what it is multiplied by),
nothing is dropped, and permutations turn everything around (one that changes nothing would hide that it mixes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Arguments = Mapping[str, Any]
Value = Tensor | float

_UNIFORM = 0.75
"""Of the way from the lowest number to the highest."""
_DEVIATIONS = 0.5
"""Standard deviations above the mean."""


class Determined(TorchDispatchMode):
    """While it is in force, what torch's random operators give does not depend on the draw."""

    def __init__(self) -> None:
        """Make it; it is a context manager."""
        super().__init__()  # type: ignore[no-untyped-call] # torch ships it so
        self.own_generators: dict[torch.Generator, Tensor] = {}
        """Generators that were handed to operators, and where they stood before."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler, seconds and many megabytes, to keep it out of what runs uncompiled."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever operators give
        """Run an operator, and replace what it drew."""
        given = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":  # noqa: SLF001 - no other name
            return func(*args, **given)
        named = _named(func, args, given)
        generator = named.get("generator")
        if generator is not None:
            self.own_generators.setdefault(generator, generator.get_state())
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001 - where torch keeps it
        if name in _CALLS:
            return _CALLS[name](func, named)
        if named.get("dropout_p"):
            return func(**named | {"dropout_p": 0.0})
        result = func(*args, **given)
        if name in _VALUES:
            fill = _VALUES[name](named)
            result.copy_(fill) if isinstance(fill, Tensor) else result.fill_(fill)
        return result


def _named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - an operator
    """All arguments by name, with the defaults of those not given."""
    named = {}
    for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001 - where torch keeps it
        named[argument.name] = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
    return named


def _uniform(named: Arguments) -> Value:
    low, high = named["from"], named["to"]
    return float(low + _UNIFORM * (high - low))


def _normal(named: Arguments) -> Value:
    mean, deviation = named["mean"], named["std"]
    value: Value = mean + _DEVIATIONS * deviation
    return value


def _bernoulli(named: Arguments) -> Value:
    probability = named.get("p", named["self"])
    # One number for all is how much a dropout keeps; many numbers are a model's own probabilities.
    return (probability >= 1 / 2).to(named["self"].dtype) if isinstance(probability, Tensor) else float(probability > 0)


def _highest(named: Arguments) -> Value:
    highest = named.get("high", named.get("to"))
    return 1 if highest is None else highest - 1


def _backwards(named: Arguments) -> Value:
    return torch.arange(named["n"] - 1, -1, -1)


def _likeliest(named: Arguments) -> Value:
    weights, count = named["self"], named["num_samples"]
    order = torch.argsort(weights, dim=-1, descending=True, stable=True)
    picked: Tensor = order[..., :1] if named["replacement"] else order[..., :count]
    return picked


_VALUES: dict[str, Callable[[Arguments], Value]] = {
    "rand": lambda _: _UNIFORM,
    "rand_like": lambda _: _UNIFORM,
    "uniform": _uniform,
    "uniform_": _uniform,
    "randn": lambda _: _DEVIATIONS,
    "randn_like": lambda _: _DEVIATIONS,
    "normal": _normal,
    "normal_": _normal,
    "normal_functional": _normal,
    "log_normal_": lambda _: 1.0,
    "exponential_": lambda named: 1 / named["lambd"],
    "cauchy_": lambda named: named["median"] + named["sigma"],
    "geometric_": lambda _: 1.0,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli,
    "binomial": lambda named: (named["count"] * named["prob"]).round(),
    "poisson": lambda named: named["self"].round(),
    "_standard_gamma": lambda named: named["self"],
    "_sample_dirichlet": lambda named: named["self"] / named["self"].sum(-1, keepdim=True),
    "randint": _highest,
    "randint_like": _highest,
    "random_": _highest,
    "randperm": _backwards,
    "multinomial": _likeliest,
}
"""What an operator's result is filled with, by its name."""


def _native_dropout(func: Any, named: Arguments) -> Any:  # noqa: ANN401 - an operator and its results
    if not named["train"]:
        return func(**named)
    p = named["p"]
    kept = named["input"] * (0.0 if p == 1 else 1 / (1 - p))
    return kept, torch.ones_like(kept, dtype=torch.bool)


def _fused_dropout(_: Any, named: Arguments) -> Any:  # noqa: ANN401 - an operator and its results
    kept = named["self"] / named["p"]
    return kept, torch.ones_like(kept, dtype=torch.uint8)


def _leaky(func: Any, named: Arguments) -> Any:  # noqa: ANN401 - an operator and its results
    """A leaky ReLU whose slope is drawn: outside of training it takes the middle one."""
    result = func(**dict(named) | {"training": False})
    if named["training"]:  # what the backward pass multiplies by
        slope = (named["lower"] + named["upper"]) / 2
        named["noise"].copy_(torch.where(result <= 0, slope, 1.0))
    return result


_CALLS: dict[str, Callable[[Any, Arguments], Any]] = {
    "native_dropout": _native_dropout,
    "_fused_dropout": _fused_dropout,
    "rrelu_with_noise": _leaky,
    "rrelu_with_noise_": _leaky,
}
"""Operators that are not just filled."""
