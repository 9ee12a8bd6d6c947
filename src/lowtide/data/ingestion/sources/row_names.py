"""The names of sequences that are rows: a column's values, or the numbers of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowtide.data.fields import IdType
from lowtide.data.ingestion.field_plan import required
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.errors import LowtideError


class RowNames:
    """Names for rows."""

    def __init__(self, column: str | None, columns: Mapping[str, ColumnType]) -> None:
        """Take them from a column; None: number the rows.

        Raises:
            LowtideError: The column is not there, or holds no names.
        """
        self.column = column
        self.id_type: IdType = "int64"
        if column is None:
            return
        told = required(column, columns, "sequence=")
        if told.depth or told.kind == "other":
            raise LowtideError(
                what=f"sequence={column!r} names a column of type {told.told}",
                why="it holds the names of the sequences",
                fix="name a column of numbers or text, or leave it out: then rows are numbered",
            )
        whole = told.kind == "number" and "INT" in told.told
        self.id_type = "int64" if whole else "string"

    @property
    def columns(self) -> list[str]:
        """The column, if there is one."""
        return [] if self.column is None else [self.column]

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
        return pc.cast(names, pa.int64() if self.id_type == "int64" else pa.string())
