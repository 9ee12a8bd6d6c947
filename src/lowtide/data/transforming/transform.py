"""What every transform is: numbers, learnt from the training part or from each sequence, applied to batches of steps.

Arrays are (steps, width), or (steps,) for a field of width 0, the steps of many sequences one after the other;
`offsets` says where each begins, and the end. float16 comes out as float32, float32 and float64 as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Array, Field
from lowtide.errors import LowtideError

Offsets = NDArray[np.int64]
VERSION = 1


@dataclass(frozen=True, eq=False)
class Transform(ABC):
    """Turns the columns of one field into others."""

    field: str
    """The field of the store."""
    columns: tuple[str, ...]
    """The columns that come in: those of the field, or the results of the transform before."""
    chosen: tuple[str, ...]
    """Those of them that it works on; the others stay as they are."""
    scalar: bool
    """Whether there is no axis of columns."""

    kind: ClassVar[str]
    """Its name where it is asked for and stored."""
    columnwise: ClassVar[bool] = True
    """Whether each column goes its own way, so that some can be inverted without the others."""
    per_sequence: ClassVar[bool] = False
    """Whether its numbers come from the steps at hand, so that it needs to know where sequences begin."""

    @property
    def results(self) -> tuple[str, ...]:
        """The columns that come out."""
        return self.columns

    @property
    def places(self) -> list[int]:
        """Where the chosen columns lie."""
        return [self.columns.index(name) for name in self.chosen]

    def apply(self, values: Array, offsets: Offsets | None = None, *, in_place: bool = False) -> Array:
        """Transform steps.

        Args:
            values: (steps, width), or (steps,) for a scalar field.
            offsets: Where each sequence begins, and the end; only needed where `per_sequence`.
            in_place: The array may be overwritten, and is then the result wherever that is possible.

        Raises:
            LowtideError: A value cannot be transformed.
        """
        assert values.ndim == (1 if self.scalar else 2)
        assert self.scalar or values.shape[1] == len(self.columns), (values.shape, self.columns)
        work = working_copy(values, in_place=in_place).reshape(len(values), len(self.columns))
        done = self._transformed(work, offsets)
        return done.reshape(len(values)) if self.scalar else done

    @abstractmethod
    def inverted(self, values: Array, columns: tuple[str, ...], numbers: Array | None) -> Array:
        """Turn results back: a new array, or the same.

        Args:
            values: Floating point, (..., columns).
            columns: The names of the values' columns: all results, or, where `columnwise`, some.
            numbers: What `numbers` gave, one row a sequence, which is the first axis of `values`; where `per_sequence`.
        """

    def numbers(self, values: Array, offsets: Offsets) -> Array | None:
        """What is found in each sequence itself, (sequences, ...), for the way back; None where nothing is."""
        del values, offsets
        return None

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Its numbers as plain values."""

    @classmethod
    @abstractmethod
    def of(cls, begun: Begun, numbers: Mapping[str, Any]) -> Transform:
        """The transform that `described` described.

        Raises:
            KeyError, TypeError, ValueError: Numbers are missing, not finite, or do not fit the columns.
        """

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which it comes back exactly: Python writes and reads float64 without loss."""
        return {
            "kind": self.kind,
            "version": VERSION,
            "field": self.field,
            "columns": list(self.columns),
            "chosen": list(self.chosen),
            "numbers": self.described(),
        }

    @abstractmethod
    def _transformed(self, work: Array, offsets: Offsets | None) -> Array:
        """Transform (steps, columns) of floating point that may be overwritten."""


@dataclass(frozen=True)
class Begun:
    """What is known of a transform before its numbers."""

    field: str
    columns: tuple[str, ...]
    chosen: tuple[str, ...]
    scalar: bool

    @property
    def places(self) -> list[int]:
        """Where the chosen columns lie."""
        return [self.columns.index(name) for name in self.chosen]


class Unlearnt(Transform):
    """One that takes nothing from the training part, and so has no numbers."""

    def described(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @classmethod
    def of(cls, begun: Begun, numbers: Mapping[str, Any]) -> Self:
        """From nothing."""
        del numbers
        return cls(begun.field, begun.columns, begun.chosen, begun.scalar)


def column_names(field: Field) -> tuple[str, ...]:
    """A field's columns, by the source's names where it has them."""
    count = max(1, field.width)
    if len(field.columns) == count:
        return field.columns
    return (field.name,) if not field.width else tuple(f"{field.name}{place}" for place in range(count))


def working_copy(values: Array, *, in_place: bool) -> Array:
    """The same numbers in an array of float32 or float64, in order, that may be overwritten."""
    if values.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
        return values.astype(np.float32)
    mine = in_place and values.flags.writeable and values.flags.c_contiguous
    return values if mine else np.array(values, order="C")


def finite(numbers: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:  # noqa: ANN401 - whatever a manifest holds
    """Stored numbers, if they are of this shape.

    Raises:
        ValueError, TypeError: They are not, or not finite.
    """
    array = np.array(numbers, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"numbers of shape {array.shape} are not {shape} finite ones")
    return array


def name_column(values: Array, wrong: NDArray[np.bool_], columns: Sequence[str]) -> str:
    """The first wrong value of (steps, columns), and its column."""
    step, column = np.argwhere(wrong)[0]
    return f"{columns[column]!r} is {values[step, column]!s}"


def refused(transform: str, field: str, what: str, fix: str) -> LowtideError:
    """The error for a transform that cannot be made or used."""
    return LowtideError(
        what=f"the transform {transform!r} of the field {field!r}: {what}",
        why="a transform holds numbers learnt from the training part, and every batch goes through them",
        fix=fix,
    )
