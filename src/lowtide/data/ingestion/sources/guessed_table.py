"""Files of text as one table: the types of their columns are guessed from the first rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, name, select
from lowtide.data.ingestion.sources.table import ROW, identity_of, rows_guessed


class GuessedTable(ABC):
    """Rows of files that DuckDB reads as text."""

    types_guessed = True
    row_counted: ClassVar[str] = ""
    """From where rows are counted in messages, where that is not plain."""

    def __init__(self, duck: Duck, paths: Sequence[Path]) -> None:
        """Take the files, in their order; nothing is read yet."""
        self._duck = duck
        self._paths = tuple(paths)
        self.rows: int | None = None
        self.bytes: int | None = sum(path.stat().st_size for path in paths)

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns and their types in the first rows."""

    @property
    def rows_about(self) -> int:
        """How many rows there are, guessed from the first lines."""
        return rows_guessed(self._paths)

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times."""
        return identity_of(self._paths)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory, about: half of those of its text."""
        return max(1, (self.bytes or 0) // 2 // max(1, self.rows_about))

    @abstractmethod
    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""

    def read_as(self, column: str, wanted: str) -> ColumnType:
        """The type in which the relation has a column."""
        return column_type(wanted) if wanted else self.columns[column]

    def where(self, wanted: Mapping[str, str], condition: str, **tables: object) -> str | None:
        """File and row of the first row that meets a condition."""
        for number, path in enumerate(self._paths):
            relation = f"({self._of_file(number, wanted)})"
            found = self._duck.rows(select({ROW: ROW}, relation, where=condition, limit=1), **tables)
            if found:
                return f"{path}, row {found[0][0]}{self.row_counted}"
        return None

    def batches(self, wanted: Mapping[str, str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, about so many rows at once, in order."""
        query = select({column: name(column) for column in wanted}, self.relation(wanted))
        yield from self._duck.stream(query, rows, in_order=True, meter=meter)

    def place_of(self, row: int) -> str:
        """Where a row is, by its number among all."""
        left = row
        for number, path in enumerate(self._paths):
            relation = f"({self._of_file(number, {})})"
            rows = self._duck.rows(select({"rows": "count(*)"}, relation))[0][0]
            if left < rows:
                return f"{path}, row {left + 1}{self.row_counted}"
            left -= rows
        return f"row {row + 1}"

    @abstractmethod
    def _of_file(self, number: int, wanted: Mapping[str, str]) -> str:
        """A query of one file's rows, with the column ROW counted from 1."""
