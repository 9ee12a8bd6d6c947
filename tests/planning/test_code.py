"""What computes something else is told otherwise, and what computes the same is told the same."""
# ruff: noqa: D101, D102, D107 - things to be told apart

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide.planning.code import told


def mean(x: Tensor) -> Tensor:
    return x.mean()


def by(scale: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * scale


def calling(inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor, *, twice: bool = False) -> Tensor:
        return inner(inner(x)) if twice else inner(x)

    return call


def helper(scale: float) -> Any:  # noqa: ANN401 - a function
    """A function that calls one of its module by name, made anew."""
    space: dict[str, Any] = {"__name__": "made_here"}
    exec(f"def inner(x):\n    return x * {scale}\n\ndef outer(x):\n    return inner(x) + 1\n", space)  # noqa: S102
    return space["outer"]


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scale

    def other(self, x: Tensor) -> Tensor:
        return x + self.scale

    @staticmethod
    def fixed(x: Tensor) -> Tensor:
        return x


class Loss(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def subclass(base: type[nn.Module], *, square: bool) -> type[nn.Module]:
    """Two classes of one name."""

    class Own(base):  # type: ignore[misc, valid-type] # made here
        if square:

            def forward(self, x: Tensor) -> Tensor:
                return x**2
        else:

            def forward(self, x: Tensor) -> Tensor:
                return x**3

    return Own


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "code": (lambda x: x + 1, lambda x: x - 1),
    "constants": (lambda x: x + 1, lambda x: x + 2),
    "names": (lambda x: x.sum(), lambda x: x.mean()),
    "closures": (by(1.0), by(2.0)),
    "functions in closures": (calling(lambda x: x + 1), calling(lambda x: x * x)),
    "defaults": (lambda x, scale=1: x * scale, lambda x, scale=2: x * scale),
    "functions that are called by name": (helper(1.0), helper(2.0)),
    "arguments of a partial": (partial(by, scale=1), partial(by, scale=2)),
    "functions of a partial": (partial(by(1.0)), partial(by(2.0))),
    "values of an object": (Scaled(1.0), Scaled(2.0)),
    "methods": (Scaled(1.0).__call__, Scaled(1.0).other),
    "values of a method's object": (Scaled(1.0).other, Scaled(2.0).other),
    "static methods": (Scaled.fixed, Scaled.other),
    "values of a module": (Loss(1.0), Loss(2.0)),
    "forwards of one name": (subclass(nn.Module, square=True)(), subclass(nn.Module, square=False)()),
    "forwards of a base": (
        subclass(subclass(nn.Module, square=True), square=True),
        subclass(subclass(nn.Module, square=False), square=True),
    ),
    "modules of torch": (nn.MSELoss(reduction="none"), nn.L1Loss(reduction="none")),
    "functions of torch": (nn.functional.mse_loss, nn.functional.l1_loss),
    "functions of torch that are called": (
        lambda x: nn.functional.mse_loss(x, x),
        lambda x: nn.functional.l1_loss(x, x),
    ),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_what_differs_is_told_apart(kind: str) -> None:
    one, other = DIFFERENT[kind]
    assert told(one) != told(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: by(1.0),
        lambda: calling(mean),
        lambda: helper(3.0),
        lambda: partial(sorted, reverse=True, key={"z": "y", "x": {"b", "a"}}.get),
        lambda: Scaled(2.0),
        lambda: Scaled(2.0).other,
        Loss,
        lambda: nn.CrossEntropyLoss(weight=torch.ones(3)),
        lambda: subclass(nn.Module, square=True),
    ],
)
def test_what_is_the_same_is_told_the_same(make: Callable[[], Any]) -> None:
    assert told(make()) == told(make())


def test_functions_that_call_each_other_come_to_an_end() -> None:
    space: dict[str, Any] = {"__name__": "made_here"}
    exec("def one(x):\n    return other(x)\n\ndef other(x):\n    return one(x)\n", space)  # noqa: S102
    assert told(space["one"]) != told(space["other"])


def test_a_variable_that_is_not_bound_yet_is_passed_over() -> None:
    def make() -> Any:  # noqa: ANN401 - a function
        def inner(x: Tensor) -> Tensor:
            return x * late

        found = told(inner)
        late = 2.0
        return found, inner

    found, inner = make()
    assert told(inner) != found
