"""Categories as codes: text whose vocabulary is learnt while it passes by, and stored.

A column of text in which numbers and other text mix is refused, since it is more often a column of numbers with a stray
word in it than one of categories; so are numbers with a decimal comma.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowtide.data.fields import Array
from lowtide.data.ingestion.dtypes import UnfitError
from lowtide.data.ingestion.sources.chunk import Mask
from lowtide.data.text.vocabulary import Vocabulary

MOST = 1 << 20
"""Categories that a column may have: beyond, it is text."""
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_PLAIN_NUMBER = re.compile(r"\s*[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+\s*")


class Categories:
    """The categories of one field."""

    def __init__(self, column: str, entries: Iterable[str] = (), *, mixed: bool) -> None:
        """Begin with what is known.

        Args:
            column: The source's name for it, for messages.
            entries: Those that the store has already.
            mixed: Whether numbers may stand among them, because somebody said that they are categories.
        """
        self.vocabulary = Vocabulary(entries, name=column)
        self._column = column
        self._mixed = mixed
        self._example: dict[bool, str] = {}
        """One entry that is a number, and one that is none."""
        self._looked_at = len(self.vocabulary)

    def encode(self, raw: Array | list[pa.Array]) -> tuple[Array, Mask | None]:
        """The codes of some values, (n,) of int32, those of missing values 0; and which are missing, None: none.

        Raises:
            UnfitError: The column holds something else than categories.
        """
        column = _text(raw[0] if isinstance(raw, list) else raw)
        missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        known = self.vocabulary.learn(column.drop_null())
        self._look_at_new(column)
        if missing is None:
            return known, None
        codes = np.zeros(len(column), dtype=known.dtype)
        codes[~missing] = known
        return codes, missing

    @property
    def numbers_alone(self) -> bool:
        """Whether all entries are numbers that nobody said are categories; "01067" is none, but a code."""
        return bool(self._example) and not self._mixed and all(map(_PLAIN_NUMBER.fullmatch, self.vocabulary.entries))

    def code(self, entry: str) -> int:
        """The code of one category, which may be new."""
        return int(self.vocabulary.learn([entry])[0])

    def _look_at_new(self, column: pa.Array) -> None:
        if len(self.vocabulary) == self._looked_at:
            return
        new = self.vocabulary.entries[self._looked_at :]
        self._looked_at = len(self.vocabulary)
        if self._looked_at > MOST:
            raise UnfitError(
                0,
                0,
                f"{self._column!r} has more than {MOST} categories",
                "a vocabulary is held in memory, and a model learns something for each of its entries",
                "name it as text (text=), leave it out, or make numbers of it in the source",
            )
        for entry in [] if self._mixed else new:
            comma = _COMMA.fullmatch(entry) is not None
            number = comma or _NUMBER.fullmatch(entry) is not None
            self._example.setdefault(number, entry)
            if comma or len(self._example) > 1:
                raise self._refused(entry, column, comma=comma)

    def _refused(self, entry: str, column: pa.Array, *, comma: bool) -> UnfitError:
        row = pc.index(column, pa.scalar(entry, column.type)).as_py()
        other = self._example.get(self._example.get(True) != entry, "")
        fix = f'correct it; or, if these are categories, write dtypes={{"{self._column}": "category"}}'
        if comma:
            what = f"{self._column!r} is {entry!r}, which looks like a number with a decimal comma"
            return UnfitError(row, 0, what, "as text it would become a category of its own", f'decimal=","; {fix}')
        return UnfitError(
            row,
            0,
            f"{self._column!r} is {entry!r} here and {other!r} elsewhere: numbers and text mix",
            "as categories, each number would become a code without its size",
            fix,
        )


def _text(values: pa.Array | pa.ChunkedArray | Array) -> pa.Array:
    """Values as Arrow text."""
    if isinstance(values, np.ndarray):
        flat = values.reshape(-1)
        values = pa.array(flat.tolist() if flat.dtype.kind in "OU" else flat)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if pa.types.is_string(values.type) else pc.cast(values, pa.string())
