"""Seeing that no two sequences have one name, in eight bytes a sequence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from lowtide.data.splitting.id_hash import hash_ids
from lowtide.data.store import Store
from lowtide.errors import LowtideError


class UniqueNames:
    """Hashes of the names met so far."""

    def __init__(self, before: Iterable[pa.Array] = ()) -> None:
        """Begin with the names that a store has already."""
        self._hashes = [hash_ids(names, 0) for names in before]

    def add(self, names: pa.Array) -> None:
        """Take some more, in the order of the store."""
        self._hashes.append(hash_ids(names, 0))

    def check(self, store: Store) -> None:
        """See that all differ.

        Args:
            store: Holds all sequences, in this order, to look names up in.

        Raises:
            LowtideError: Two sequences have the same name.
        """
        hashes = np.concatenate([np.empty(0, dtype=np.uint64), *self._hashes])
        ordered = np.sort(hashes)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        for value in np.unique(twice):
            numbers = np.flatnonzero(hashes == value)
            names = [store.ids[int(number)] for number in numbers]
            if len(set(names)) < len(names):  # and not two names of one hash, which is possible
                again = next(name for name in names if names.count(name) > 1)
                raise LowtideError(
                    what=f"{names.count(again)} sequences are called {again!r}: the first are numbers "
                    f"{[int(number) for number, name in zip(numbers, names, strict=True) if name == again][:2]}",
                    why="a sequence is known by its name: it would be in the store twice, or in two parts of a split",
                    fix="give each sequence a name of its own; steps of one sequence that come separately are one "
                    'sequence in a table with one row a step (layout="long")',
                )
