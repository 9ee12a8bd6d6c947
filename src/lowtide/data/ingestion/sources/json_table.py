"""JSON Lines files, or JSON arrays of objects, as one table."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, name, select, text
from lowtide.data.ingestion.sources.table import FILE, ROW, identity_of, names_of, rows_guessed
from lowtide.errors import LowtideError


class JsonTable:
    """Rows of JSON files: a key is a column; where an object lacks it, the value is missing."""

    types_guessed = True

    def __init__(self, duck: Duck, paths: Sequence[Path], encoding: str) -> None:
        """Nothing is read yet.

        Raises:
            LowtideError: The encoding is not JSON's.
        """
        if codecs.lookup(encoding).name not in {"utf-8", "ascii"}:
            raise LowtideError(
                what=f"JSON files in {encoding}",
                why="JSON is UTF-8 (RFC 8259), and readers take it for that",
                fix="write the files in UTF-8",
            )
        self._duck = duck
        self._paths = tuple(paths)
        self.rows: int | None = None
        self.bytes: int | None = sum(path.stat().st_size for path in paths)

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Keys and their types in the first rows."""
        return {FILE: column_type("VARCHAR"), **self._own}

    @property
    def rows_about(self) -> int:
        """How many rows there are, guessed from the first lines."""
        return rows_guessed(self._paths)

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times."""
        return identity_of(self._paths)

    def prepare(self, scratch: Path) -> None:
        """Nothing has to be made."""

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""
        return f"({self._select(self._paths, wanted, numbered=numbered)})"

    def read_as(self, column: str, wanted: str) -> ColumnType:
        """The type in which the relation has a column."""
        return column_type(wanted) if wanted else self.columns[column]

    def where(self, wanted: Mapping[str, str], condition: str, **tables: object) -> str | None:
        """File and row of the first row that meets a condition."""
        for path in self._paths:
            relation = self._select([path], wanted, numbered=True)
            found = self._duck.rows(select({ROW: ROW}, f"({relation})", where=condition, limit=1), **tables)
            if found:
                return f"{path}, row {found[0][0]}"
        return None

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory, about: half of those of its text."""
        return max(1, (self.bytes or 0) // 2 // max(1, self.rows_about))

    def batches(self, columns: Sequence[str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, about so many rows at once, in order."""
        query = select({column: name(column) for column in columns}, self.relation(dict.fromkeys(columns, "")))
        yield from self._duck.stream(query, rows, in_order=True, meter=meter)

    def place_of(self, row: int) -> str:
        """Where a row is, by its number among all."""
        left = row
        for path in self._paths:
            relation = self._select([path], {}, numbered=True)
            rows = self._duck.rows(select({"rows": "count(*)"}, f"({relation})"))[0][0]
            if left < rows:
                return f"{path}, row {left + 1}"
            left -= rows
        return f"row {row + 1}"

    @cached_property
    def _own(self) -> dict[str, ColumnType]:
        found = self._duck.types(self._read(self._paths, {}))
        return {column: column_type(told) for column, told in found.items()}

    def _select(self, files: Sequence[Path], wanted: Mapping[str, str], *, numbered: bool) -> str:
        columns = [name(column) for column in wanted if column in self._own]
        if FILE in wanted and FILE not in self._own:
            listed = ", ".join(text(file) for file in names_of(self._paths))
            first = self._paths.index(files[0])
            columns.append(f"list_extract([{listed}], CAST(file_index AS BIGINT) + {first + 1}) AS {FILE}")
        if numbered:
            columns.append(f"row_number() OVER () AS {ROW}")
        types = {column: told or self._own[column].told for column, told in wanted.items() if column in self._own}
        return " ".join(["SELECT", ", ".join(columns), "FROM", self._read(files, types)])

    def _read(self, files: Sequence[Path], types: Mapping[str, str]) -> str:
        listed = ", ".join(text(str(path)) for path in files)
        columns = ", ".join(f"{text(column)}: {text(told)}" for column, told in types.items())
        return f"read_json([{listed}], format = 'auto'" + (f", columns = {{{columns}}})" if types else ")")
