"""Columns shifted and scaled by numbers of the training part: to mean 0 and deviation 1, or between two bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Array
from lowtide.data.transforming.transform import Begun, Offsets, Transform, finite, refused

_ROWS = 64
"""Steps that one row of the tiled numbers spans: broadcasting over a few columns would be slow."""
_BLOCK = 1 << 17
"""Numbers worked on at once, so that the second operation finds them in the cache."""


@dataclass(frozen=True, eq=False)
class Affine(Transform):
    """(x - center) / scale + offset, column by column; columns that are not chosen have 0, 1 and 0."""

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    offset: NDArray[np.float64]

    def inverted(self, values: Array, columns: tuple[str, ...], numbers: Array | None) -> Array:
        """(y - offset) * scale + center."""
        del numbers
        at = [self.columns.index(name) for name in columns]
        center, scale, offset = (part[at].astype(values.dtype) for part in (self.center, self.scale, self.offset))
        back: Array = values - offset
        back *= scale
        back += center
        return back

    def described(self) -> dict[str, Any]:
        """The three numbers of every column."""
        return {"center": self.center.tolist(), "scale": self.scale.tolist(), "offset": self.offset.tolist()}

    @classmethod
    def of(cls, begun: Begun, numbers: Mapping[str, Any]) -> Self:
        """From the three numbers of every column."""
        shape = (len(begun.columns),)
        center, scale, offset = (finite(numbers[name], shape) for name in ("center", "scale", "offset"))
        if not (scale != 0).all():
            raise ValueError("a scale is 0")
        return cls(begun.field, begun.columns, begun.chosen, begun.scalar, center, scale, offset)

    @classmethod
    def fitted(cls, begun: Begun, center: Array, scale: Array, offset: float) -> Self:
        """From numbers of the chosen columns."""
        width = len(begun.columns)
        centers, scales, lowest = np.zeros(width), np.ones(width), np.zeros(width)
        centers[begun.places], scales[begun.places], lowest[begun.places] = center, scale, offset
        return cls(begun.field, begun.columns, begun.chosen, begun.scalar, centers, scales, lowest)

    def _transformed(self, work: Array, offsets: Offsets | None) -> Array:
        del offsets
        center, factor, offset = self._factors(work.dtype)
        width = len(self.columns)
        whole = len(work) // _ROWS * _ROWS
        tiled = work[:whole].reshape(-1, _ROWS * width)
        many = max(1, _BLOCK // (_ROWS * width))
        for first in range(0, len(tiled), many):
            _scale(tiled[first : first + many], center, factor, offset)
        _scale(work[whole:], center[:width], factor[:width], offset[:width])
        return work

    def _factors(self, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """The numbers in the type of the values, tiled."""
        with np.errstate(over="ignore"):
            parts = [np.tile(part.astype(dtype), _ROWS) for part in (self.center, 1 / self.scale, self.offset)]
        if not all(np.isfinite(part).all() for part in parts):
            raise refused(
                self.kind,
                self.field,
                f"its numbers exceed {dtype}",
                "scale the data at the source, or store the field as float64: dtypes=",
            )
        return parts[0], parts[1], parts[2]


class Standard(Affine):
    """To mean 0 and standard deviation 1 over the training part; a constant column becomes 0."""

    kind = "standard"


class MinMax(Affine):
    """To between two bounds over the training part; a constant column becomes the lower one."""

    kind = "minmax"


def _scale(values: Array, center: Array, factor: Array, offset: Array) -> None:
    np.subtract(values, center, out=values)
    np.multiply(values, factor, out=values)
    if offset.any():
        np.add(values, offset, out=values)
