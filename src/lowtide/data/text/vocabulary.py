"""Categories and their codes: code k is the k-th entry of a vocabulary, and stays so whatever is appended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.fields import StoredType
from lowtide.errors import LowtideError

Codes = NDArray[np.int32]

_MOST = (1 << 31) - 1


class Vocabulary:
    """Entries in the order of their codes, to which more can be added at the end.

    Where all categories are known beforehand, they are best given sorted; where they arrive bit by bit, `learn` gives
    codes in the order of first appearance.
    """

    def __init__(self, entries: Iterable[Any] = (), *, name: str = "") -> None:
        """Begin with these entries.

        Args:
            entries: Text, each once; the first one's code is 0.
            name: The column, for messages.

        Raises:
            LowtideError: An entry is there twice, or is no text.
        """
        self.name = name
        self._codes: dict[str, int] = {}
        for entry in entries:
            if not isinstance(entry, str) or entry in self._codes:
                raise self._refused(f"the entry {entry!r} is no text, or is there twice", "give each category once")
            self._codes[entry] = len(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __contains__(self, entry: object) -> bool:
        return entry in self._codes

    @property
    def entries(self) -> list[str]:
        """All entries, in the order of their codes."""
        return list(self._codes)

    def learn(self, values: pa.Array | pa.ChunkedArray | Sequence[str]) -> Codes:
        """The codes of some values; what is new among them becomes an entry.

        Raises:
            LowtideError: A value is missing.
        """
        return self._encoded(values, new=True)

    def encode(self, values: pa.Array | pa.ChunkedArray | Sequence[str]) -> Codes:
        """The codes of some values.

        Raises:
            LowtideError: A value is missing, or is no entry.
        """
        return self._encoded(values, new=False)

    def decode(self, codes: NDArray[Any]) -> list[str]:
        """The entries of some codes.

        Raises:
            LowtideError: A code is no entry's.
        """
        flat = np.asarray(codes).reshape(-1)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < len(self):
            raise self._refused(
                f"codes from {flat.min()} to {flat.max()} do not all belong to its {len(self)} entries",
                "decode what this store, or a model trained on it, gave",
            )
        entries = self.entries
        return [entries[code] for code in flat.tolist()]

    def _encoded(self, values: pa.Array | pa.ChunkedArray | Sequence[str], *, new: bool) -> Codes:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, pa.string())
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if array.null_count:
            raise self._refused(f"{array.null_count} values are missing", "fill them, or drop their rows: missing=")
        # Each distinct value is looked up once: the loop is over categories, not over rows.
        parts = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        distinct = pc.cast(parts.dictionary, pa.string()).to_pylist()
        used = set(pc.unique(parts.indices).to_pylist())
        codes = np.full(len(distinct), -1, dtype=np.int32)
        for place, entry in enumerate(distinct):
            if place in used:
                codes[place] = self._code(entry, new=new)
        places: NDArray[np.int64] = parts.indices.to_numpy(zero_copy_only=False)
        return codes[places]

    def _code(self, entry: str | None, *, new: bool) -> int:
        if entry is None:
            raise self._refused("a value is missing", "fill it, or drop its row: missing=")
        known = self._codes.get(entry)
        if known is not None:
            return known
        if not new:
            raise self._refused(
                f"{entry!r} is none of its {len(self)} categories",
                "correct the value, or append data that have it: appended categories get codes at the end",
            )
        if len(self) == _MOST:
            raise self._refused(f"there are more than {_MOST} categories", "use fewer, or a numeric column")
        self._codes[entry] = len(self)
        return len(self) - 1

    def _refused(self, what: str, fix: str) -> LowtideError:
        return LowtideError(
            what=f"categories of {self.name!r}: {what}" if self.name else f"categories: {what}",
            why="every value of a categorical column is stored as the code of its category",
            fix=fix,
        )


def code_type(size: int) -> StoredType:
    """The smallest stored type that holds the codes of a vocabulary of this size, which will not grow."""
    if size - 1 <= np.iinfo(np.int8).max:
        return "int8"
    return "int16" if size - 1 <= np.iinfo(np.int16).max else "int32"
