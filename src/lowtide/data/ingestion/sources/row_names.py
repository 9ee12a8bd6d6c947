"""The names of sequences that are rows: a column's values, or the numbers of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowtide.data.fields import IdType
from lowtide.data.ingestion.field_plan import required
from lowtide.data.ingestion.sources.table import Table
from lowtide.errors import LowtideError


class RowNames:
    """Names for rows."""

    def __init__(self, column: str | None, table: Table) -> None:
        """Take them from a column; None: number the rows.

        Raises:
            LowtideError: The column is not there, or holds no names.
        """
        self.column = column
        self.id_type: IdType = "int64"
        self.wanted: Mapping[str, str] = {}
        """The column, if there is one, and as what it is best read."""
        if column is None:
            return
        told = required(column, table.columns, "sequence=")
        if told.depth or told.kind == "other":
            raise LowtideError(
                what=f"sequence={column!r} names a column of type {told.told}",
                why="it holds the names of the sequences",
                fix="name a column of numbers or text, or leave it out: then rows are numbered",
            )
        whole = told.kind == "number" and "INT" in told.told
        self.id_type = "int64" if whole else "string"
        self.wanted = {column: "VARCHAR" if table.types_guessed or not whole else ""}

    def of(self, batch: pa.RecordBatch, first: int, before: int, place_of: Callable[[int], str]) -> pa.Array:
        """The names of some rows.

        Args:
            batch: The rows.
            first: The number of the first among all of the source.
            before: Sequences that the store has already.
            place_of: Where a row is, in words.

        Raises:
            LowtideError: A name is missing.
        """
        if self.column is None:
            return pa.array(np.arange(before + first, before + first + batch.num_rows))
        names = batch.column(self.column)
        if names.null_count:
            row = first + int(np.argmax(names.is_null().to_numpy(zero_copy_only=False)))
            raise LowtideError(
                what=f"{place_of(row)}: column {self.column!r} is missing",
                why="it holds the names of the sequences",
                fix="fill it in, or leave sequence= out: then rows are numbered",
            )
        if pa.types.is_dictionary(names.type):
            names = names.dictionary_decode()
        if self.id_type == "string":
            return pc.cast(names, pa.string())
        return self._whole(names, first, place_of)

    def _whole(self, names: pa.Array, first: int, place_of: Callable[[int], str]) -> pa.Array:
        """Names as whole numbers, which "007" and "7.0" are not: they are other names than "7"."""
        told = names if pa.types.is_integer(names.type) else pc.utf8_trim_whitespace(pc.cast(names, pa.string()))
        made = _as_whole(told)
        if made is not None:
            return made
        row = next(row for row in range(len(told)) if _as_whole(told[row : row + 1]) is None)
        raise LowtideError(
            what=f"{place_of(first + row)}: column {self.column!r} is {names[row].as_py()!r}, and no whole number, as "
            "the first rows are",
            why="it holds the names of the sequences",
            fix="correct it; or quote, or write as text, all names of the column",
        )


def _as_whole(names: pa.Array) -> pa.Array | None:
    """The names as int64; None where one is not written as such a number is."""
    try:
        made = pc.cast(names, pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pa.types.is_integer(names.type) or pc.all(pc.equal(pc.cast(made, pa.string()), names)).as_py()
    return made if same else None
