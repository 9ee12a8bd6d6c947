"""One sequence of a store: its arrays as they lie on disk, not copied.

A sequence that lies in one piece comes as plain NumPy arrays over the mapped file. One in several pieces comes as
`SequenceArray`s, which have a shape and a type and are cut along time like arrays, and read what is asked for alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from lowtide.data.fields import Array, Field
from lowtide.errors import LowtideError

Piecewise: TypeAlias = "Array | SequenceArray"
Part: TypeAlias = "Piecewise | Mapping[str, Piecewise] | None"
"""One role's arrays: the one itself, several by name, or none."""


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence."""

    id: str | int
    inputs: Part
    targets: Part
    static: Part
    length: int

    def __repr__(self) -> str:
        parts = [f"{name}={_shapes(getattr(self, name))}" for name in ("inputs", "targets", "static")]
        return f"Sequence(id={self.id!r}, length={self.length}, {', '.join(parts)})"


class SequenceArray:
    """An array of one sequence that lies in several pieces: cut along time without reading it.

    `array[100:200]` and `array[:, None]` are such arrays again, `array[5]` is one step, and `numpy.asarray(array)`
    reads all of it.
    """

    def __init__(self, pieces: list[Array], field: Field) -> None:
        """Put pieces, (steps, ...) of the stored type, one behind the other."""
        assert pieces
        self._pieces = pieces
        self._field = field
        self._bounds = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces], dtype=np.int64)])

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a NumPy array."""
        return (int(self._bounds[-1]), *self._pieces[0].shape[1:])

    @property
    def ndim(self) -> int:
        """As of a NumPy array."""
        return self._pieces[0].ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of a NumPy array."""
        return self._field.values(self._pieces[0][:0]).dtype

    @property
    def size(self) -> int:
        """As of a NumPy array."""
        return sum(piece.size for piece in self._pieces)

    @property
    def nbytes(self) -> int:
        """Bytes of the array that it would be if it were read."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - an array, or one of its elements
        time, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if isinstance(time, slice):
            pieces = self._cut(*time.indices(len(self)))
            return SequenceArray([piece[(slice(None), *rest)] for piece in pieces], self._field)
        if isinstance(time, int | np.integer):
            step = range(len(self))[int(time)]
            piece = int(np.searchsorted(self._bounds, step, side="right")) - 1
            return self._field.values(self._pieces[piece][(step - int(self._bounds[piece]), *rest)])
        raise LowtideError(
            what=f"an array in several pieces was indexed along time with {time!r}",
            why="it is read piece by piece, forwards",
            fix="cut it with a step number or a slice, or read all of it: numpy.asarray(array)",
        )

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            yield from self._field.values(piece)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array in several pieces cannot be had as one without a copy")
        result = np.empty(self.shape, dtype=self.dtype if dtype is None else dtype)
        for piece, start in zip(self._pieces, self._bounds.tolist(), strict=False):
            result[start : start + len(piece)] = self._field.values(piece)
        return result

    def __repr__(self) -> str:
        return f"SequenceArray(shape={self.shape}, dtype={self.dtype}, pieces={len(self._pieces)})"

    def _cut(self, start: int, stop: int, step: int) -> list[Array]:
        """The pieces of a slice; one of them at least, if empty."""
        if step < 1:
            raise LowtideError(
                what=f"an array in several pieces was cut with a step of {step}",
                why="it is read piece by piece, forwards",
                fix="read it first: numpy.asarray(array[a:b])[::-1]",
            )
        cut = []
        for piece, begin in zip(self._pieces, self._bounds.tolist(), strict=False):
            # The first step of the slice that is not before this piece.
            first = start + max(0, -(-(begin - start) // step)) * step - begin
            part = piece[first : max(first, stop - begin) : step]
            if len(part):
                cut.append(part)
        return cut or [self._pieces[0][:0]]


def _shapes(part: Part) -> str:
    if part is None:
        return "None"
    if isinstance(part, Mapping):
        return "{" + ", ".join(f"{name}: {_shapes(array)}" for name, array in part.items()) + "}"
    return f"{part.dtype}{list(part.shape)}"
