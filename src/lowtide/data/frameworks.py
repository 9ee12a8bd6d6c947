"""Arrays in the framework that is asked for, made where NumPy can fill them. No framework is loaded before that."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from lowtide.data.fields import Array
from lowtide.errors import LowtideError, MissingExtraError

Framework = Literal["torch", "numpy"]

_INSTALL = {
    "torch": 'pip install "lowtide[torch]"',
    "tensorflow": "pip install tensorflow",
    "keras": "pip install keras",
}
_BFLOAT16 = "bfloat16"


def load(name: str, *, wanted_by: str) -> ModuleType:
    """Import a framework.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtraError(
            what=f"{wanted_by} needs the package {name!r}, which is not installed",
            why="Lowtide's base holds no framework, so that each user installs only the one that is used",
            fix=_INSTALL[name.partition(".")[0]],
        ) from error


class Arrays(Protocol):
    """Makes arrays of one framework."""

    def check_type(self, name: str) -> None:
        """Refuse a type that this framework has not."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Array]:
        """An array not filled yet, and a NumPy view of its memory; bfloat16 as uint16."""

    def adopt(self, array: Array) -> Any:  # noqa: ANN401 - of either framework
        """The same numbers."""


class NumPyArrays:
    """NumPy's own."""

    def check_type(self, name: str) -> None:
        """Refuse bfloat16, which NumPy has not."""
        _check_type(name, allow_bfloat16=False)

    def empty(self, shape: tuple[int, ...], dtype: str) -> tuple[Array, Array]:
        """An array, twice."""
        array = np.empty(shape, dtype)
        return array, array

    def adopt(self, array: Array) -> Array:
        """The array."""
        return array


@dataclass(frozen=True)
class TorchArrays:
    """Tensors of torch on the CPU."""

    torch: ModuleType
    pin_memory: bool = False
    """Whether they lie in pages that a GPU can read while others compute."""

    def check_type(self, name: str) -> None:
        """Refuse what is no type."""
        _check_type(name, allow_bfloat16=True)

    def empty(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Array]:
        """A tensor and NumPy's view of it."""
        tensor = self.torch.empty(shape, dtype=getattr(self.torch, dtype), pin_memory=self.pin_memory)
        # NumPy has no bfloat16.
        return tensor, tensor.view(self.torch.uint16).numpy() if dtype == _BFLOAT16 else tensor.numpy()

    def adopt(self, array: Array) -> Any:  # noqa: ANN401 - a tensor
        """A tensor over the array's memory, or of pinned memory."""
        tensor = self.torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        return tensor.pin_memory() if self.pin_memory else tensor


def arrays_of(framework: Framework, *, pin_memory: bool) -> Arrays:
    """The maker of arrays of a framework.

    Raises:
        LowtideError: The framework is not installed, or cannot pin memory.
    """
    if framework == "torch":
        torch = load("torch", wanted_by='framework="torch"')
        if pin_memory:
            _check_pinning(torch)
        return TorchArrays(torch, pin_memory)
    if pin_memory:
        raise LowtideError(
            what='pin_memory=True with framework="numpy"',
            why="torch alone makes pinned memory",
            fix='leave it out, or use framework="torch"',
        )
    return NumPyArrays()


def _check_pinning(torch: ModuleType) -> None:
    try:
        torch.empty(1, pin_memory=True)
    except RuntimeError as error:
        raise LowtideError(
            what=f"pin_memory=True, and torch refuses: {error}",
            why="pinned memory is what a GPU reads by itself, and torch finds none here that would",
            fix="leave it out on this machine",
        ) from error


def _check_type(name: str, *, allow_bfloat16: bool) -> None:
    known = {"float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    known |= {_BFLOAT16} if allow_bfloat16 else set()
    if name not in known:
        raise LowtideError(
            what=f"batches of type {name!r} were asked for",
            why=f"the types are {sorted(known)}",
            fix="choose one of these in dtypes={field: type}",
        )
