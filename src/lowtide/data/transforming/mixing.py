"""Transforms that make new columns out of several, all at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from lowtide.data.fields import Array
from lowtide.data.transforming.transform import Offsets, Transform


class Mixing(Transform):
    """Makes columns out of the chosen ones, which go; the others stay, and come first.

    Where as many columns come out as went in, each keeps its place and name.
    """

    columnwise: ClassVar[bool] = False

    @property
    @abstractmethod
    def made(self) -> int:
        """How many columns come out of the chosen ones."""

    @property
    def results(self) -> tuple[str, ...]:
        """The columns that come out."""
        if self._in_place:
            return self.columns
        return (*self._others, *(f"{self.kind}{place}" for place in range(self.made)))

    def inverted(self, values: Array, columns: tuple[str, ...], numbers: Array | None) -> Array:
        """All columns that came in, from all that came out."""
        del numbers
        assert columns == self.results
        flat = values.reshape(-1, len(columns))
        made_at = self.places if self._in_place else list(range(len(self._others), len(columns)))
        back = np.empty((len(flat), len(self.columns)), dtype=values.dtype)
        back[:, self.places] = self._unmixed(flat[:, made_at])
        back[:, self._other_places] = flat[:, [place for place in range(len(columns)) if place not in made_at]]
        return back.reshape(*values.shape[:-1], len(self.columns))

    @abstractmethod
    def _mixed(self, chosen: Array) -> Array:
        """(steps, made) out of the chosen columns, which may be overwritten."""

    @abstractmethod
    def _unmixed(self, made: Array) -> Array:
        """The chosen columns out of what was made of them."""

    @property
    def _in_place(self) -> bool:
        return self.made == len(self.chosen) and self.keeps_names

    keeps_names: ClassVar[bool] = False
    """Whether, where as many columns come out, they are still the same ones."""

    @property
    def _others(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.chosen)

    @property
    def _other_places(self) -> list[int]:
        return [place for place, name in enumerate(self.columns) if name not in self.chosen]

    def _transformed(self, work: Array, offsets: Offsets | None) -> Array:
        del offsets
        if len(self.chosen) == len(self.columns):
            return self._mixed(work)
        made = self._mixed(work[:, self.places])
        if self._in_place:
            work[:, self.places] = made
            return work
        return np.concatenate([work[:, self._other_places], made], axis=1)
