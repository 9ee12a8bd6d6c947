"""JSON Lines files, or JSON arrays of objects, as one table."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, name, text
from lowtide.data.ingestion.sources.guessed_table import GuessedTable
from lowtide.data.ingestion.sources.table import FILE, ROW, names_of
from lowtide.errors import LowtideError


class JsonTable(GuessedTable):
    """Rows of JSON files: a key is a column; where an object lacks it, the value is missing."""

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
        super().__init__(duck, paths)

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Keys and their types in the first rows."""
        return {FILE: column_type("VARCHAR"), **self._own}

    def prepare(self, scratch: Path) -> None:
        """Nothing has to be made."""

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""
        return f"({self._select(self._paths, wanted, numbered=numbered)})"

    def _of_file(self, number: int, wanted: Mapping[str, str]) -> str:
        return self._select(self._paths[number : number + 1], wanted, numbered=True)

    @cached_property
    def _own(self) -> dict[str, ColumnType]:
        found = self._duck.types(self._read(self._paths, {}))
        # What begins with dates may go on with times, and DuckDB would take the date of each without a word.
        found = {column: "TIMESTAMP" if told == "DATE" else told for column, told in found.items()}
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
