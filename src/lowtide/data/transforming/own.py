"""A transform of the user's own: any object with `partial_fit` and `transform`, as scikit-learn has them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from lowtide.data.fields import Array
from lowtide.data.transforming.mixing import Mixing
from lowtide.data.transforming.own_numbers import NotNumbersError, class_name, decode, encode, find_class
from lowtide.data.transforming.transform import Begun, refused
from lowtide.errors import LowtideError


@dataclass(frozen=True, eq=False)
class Own(Mixing):
    """Hands (steps, chosen columns) to an object's `transform`, and back to its `inverse_transform`."""

    class_name: str
    attributes: Mapping[str, Any]
    """All that the object holds, as plain values."""
    width: int

    kind = "own"
    keeps_names: ClassVar[bool] = True

    @property
    def made(self) -> int:
        """The columns that it makes."""
        return self.width

    def described(self) -> dict[str, Any]:
        """The object's class and attributes."""
        return {"class": self.class_name, "attributes": dict(self.attributes), "width": self.width}

    @classmethod
    def of(cls, begun: Begun, numbers: Mapping[str, Any]) -> Self:
        """From the object's class and attributes; the class itself is looked for when it is used."""
        name, attributes, width = numbers["class"], numbers["attributes"], numbers["width"]
        if not isinstance(name, str) or not isinstance(attributes, dict) or type(width) is not int or width < 1:
            raise ValueError("no class, attributes and width")
        for value in attributes.values():
            decode(value)
        return cls(begun.field, begun.columns, begun.chosen, begun.scalar, name, attributes, width)

    @classmethod
    def fitted(cls, begun: Begun, made: object, width: int) -> Self:
        """From the object itself, after its last `partial_fit`.

        Raises:
            LowtideError: It holds something that is no number.
        """
        try:
            attributes = {name: encode(value, name) for name, value in vars(made).items()}
        except (NotNumbersError, TypeError) as error:
            raise refused(
                type(made).__name__,
                begun.field,
                f"it cannot be stored as numbers: {error}",
                "keep in the object only numbers, text, arrays of finite numbers, and lists or dictionaries of them",
            ) from error
        own = cls(begun.field, begun.columns, begun.chosen, begun.scalar, class_name(made), attributes, width)
        if find_class(own.class_name) is not type(made):
            raise refused(
                type(made).__name__,
                begun.field,
                f"its class cannot be found again as {own.class_name!r}",
                "define the class in a module, not inside of a function",
            )
        return own

    @cached_property
    def instance(self) -> Any:  # noqa: ANN401 - of the user's class
        """The object, made of its class and attributes.

        Raises:
            LowtideError: The program has not brought the class.
        """
        found = find_class(self.class_name)
        if found is None:
            module, _, name = self.class_name.partition(":")
            raise refused(
                self.kind,
                self.field,
                f"its class {name!r} of the module {module!r} is not there",
                f"import or define it before the store is used: {module!r} is not imported because a store says so",
            )
        made: Any = object.__new__(found)
        made.__dict__.update({name: decode(value) for name, value in self.attributes.items()})
        return made

    def _mixed(self, chosen: Array) -> Array:
        return self._called("transform", chosen, self.width)

    def _unmixed(self, made: Array) -> Array:
        return self._called("inverse_transform", made, len(self.chosen))

    def _called(self, method: str, values: Array, width: int) -> Array:
        made = self.instance
        if not hasattr(made, method):
            raise refused(self.kind, self.field, f"{self.class_name} has no {method}", f"give the class a {method}(X)")
        if not len(values):
            return np.empty((0, width), dtype=values.dtype)
        result = np.asarray(getattr(made, method)(values))
        if result.shape != (len(values), width):
            raise refused(
                self.kind,
                self.field,
                f"{self.class_name}.{method} made shape {result.shape} of shape {values.shape}",
                f"make one row of {width} numbers out of every row",
            )
        return result.astype(values.dtype, copy=False)


def copied(made: object) -> Any:  # noqa: ANN401 - of the user's class
    """A copy to fit, so that the user's object stays as it is.

    Raises:
        LowtideError: It cannot be copied.
    """
    try:
        return copy.deepcopy(made)
    except TypeError as error:
        raise LowtideError(
            what=f"the transform {type(made).__name__} cannot be copied: {error}",
            why="it is fitted in a copy, and stored as numbers",
            fix="keep in the object only numbers, text, arrays of finite numbers, and lists or dictionaries of them",
        ) from error
