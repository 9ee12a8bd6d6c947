"""An object of the user's own as plain numbers and back, so that nothing in a store is ever unpickled.

All that the object holds is stored: numbers, text, arrays of numbers, lists, tuples and dictionaries of them. Its
class is stored by name, and used only if the user's program has imported it, or if it is one of scikit-learn's.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, str, type(None))
_LIBRARY = "sklearn"


class NotNumbersError(Exception):
    """An attribute is no number and not made of numbers; its message names it."""


def encode(value: object, path: str) -> Any:  # noqa: ANN401 - what JSON takes
    """A value as plain values.

    Args:
        value: Anything.
        path: The attribute that it was found in.

    Raises:
        NotNumbersError: It is not made of numbers and text.
    """
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise NotNumbersError(f"{path} is an array of {array.dtype}, or not finite")
        scalar = isinstance(value, np.generic)
        return {
            "array": array.reshape(-1).tolist(),
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "one": scalar,
        }
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, f"{path}[{place}]") for place, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(item, f"{path}[{key!r}]") for key, item in value.items()}}
    raise NotNumbersError(f"{path} is a {type(value).__name__}")


def decode(plain: Any) -> Any:  # noqa: ANN401 - whatever a manifest holds
    """The value that `encode` described.

    Raises:
        KeyError, TypeError, ValueError: It is nothing that `encode` writes.
    """
    if isinstance(plain, _PLAIN):
        return plain
    if "array" in plain:
        dtype = np.dtype(plain["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"an array of {dtype}")
        array = np.array(plain["array"], dtype=dtype).reshape(plain["shape"])
        return array[()] if plain["one"] else array
    if "float" in plain:
        return float(plain["float"])
    if "list" in plain:
        return [decode(item) for item in plain["list"]]
    if "tuple" in plain:
        return tuple(decode(item) for item in plain["tuple"])
    return {str(key): decode(item) for key, item in plain["dict"].items()}


def class_name(made: object) -> str:
    """Where the class of an object is found: module:name; of scikit-learn, its public module."""
    module = type(made).__module__
    if module.partition(".")[0] == _LIBRARY:
        module = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return f"{module}:{type(made).__qualname__}"


def find_class(name: str) -> type[Any] | None:
    """The class of this name that can fit and transform; None where the program has not imported one."""
    module, _, qualified = name.partition(":")
    if module.partition(".")[0] == _LIBRARY and module not in sys.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            return None
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    fits = isinstance(found, type) and all(
        callable(getattr(found, does, None)) for does in ("partial_fit", "transform")
    )
    return found if fits else None
