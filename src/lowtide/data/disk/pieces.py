"""Which rows a sequence lies in: almost always one, several where it is longer than a shard."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray


class Pieces:
    """Sequences and the rows that they lie in; memory grows with the number of continued rows alone."""

    def __init__(self, continued_rows: NDArray[np.int64]) -> None:
        """Take the rows that continue the row before, ascending."""
        self.continued_rows = continued_rows
        # Before the k-th continued row (from 0) lie k others, and the row where its sequence began.
        self._owners: NDArray[np.int64] = continued_rows - np.arange(1, len(continued_rows) + 1)
        self._owners_list: list[int] = self._owners.tolist()

    @property
    def whole(self) -> bool:
        """Whether every sequence is one row."""
        return not self._owners_list

    def rows(self, sequence: int) -> range:
        """The rows of one sequence."""
        before = bisect_left(self._owners_list, sequence)
        within = bisect_right(self._owners_list, sequence) - before
        return range(sequence + before, sequence + before + within + 1)

    def last_rows(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last row of each of these sequences: where its values per sequence are."""
        return sequences + np.searchsorted(self._owners, sequences, side="right")

    def first_rows(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first row of each of these sequences."""
        return sequences + np.searchsorted(self._owners, sequences, side="left")

    def several(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these sequences lie in more than one row."""
        several: NDArray[np.bool_] = self.first_rows(sequences) != self.last_rows(sequences)
        return several
