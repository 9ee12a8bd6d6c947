"""The columns' principal components: fewer columns that hold most of what the chosen ones say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Array
from lowtide.data.transforming.mixing import Mixing
from lowtide.data.transforming.transform import Begun, finite

_PRODUCT = 200_000
"""Multiplications of one call, few enough that linear algebra libraries start no threads for them: batches are made
beside a model that uses all cores."""


@dataclass(frozen=True, eq=False)
class Principal(Mixing):
    """(x - mean) times the components; back, up to what the components leave out."""

    mean: NDArray[np.float64]
    components: NDArray[np.float64]
    """(components, chosen columns)."""

    kind = "pca"

    @property
    def made(self) -> int:
        """The components."""
        return len(self.components)

    def described(self) -> dict[str, Any]:
        """Mean and components."""
        return {"mean": self.mean.tolist(), "components": self.components.tolist()}

    @classmethod
    def of(cls, begun: Begun, numbers: Mapping[str, Any]) -> Self:
        """From mean and components."""
        width = len(begun.chosen)
        components = numbers["components"]
        if not 0 < len(components) <= width:
            raise ValueError(f"{len(components)} components of {width} columns")
        mean = finite(numbers["mean"], (width,))
        return cls(
            begun.field, begun.columns, begun.chosen, begun.scalar, mean, finite(components, (len(components), width))
        )

    def _mixed(self, chosen: Array) -> Array:
        mean = self.mean.astype(chosen.dtype)
        turned = np.ascontiguousarray(self.components.T, dtype=chosen.dtype)
        made = np.empty((len(chosen), self.made), dtype=chosen.dtype)
        rows = max(16, _PRODUCT // self.components.size)
        for first in range(0, len(chosen), rows):
            np.matmul(chosen[first : first + rows] - mean, turned, out=made[first : first + rows])
        return made

    def _unmixed(self, made: Array) -> Array:
        back: Array = made @ self.components.astype(made.dtype)
        back += self.mean.astype(made.dtype)
        return back
