"""CSV files as one table: each file's header is read, so that columns are found by name in every one of them.

The separator is the one with which the header has the columns that are asked for. Values are quoted with " or not at
all; a line with another number of values than the header is an error. Types are those of the first rows of the largest
file; where a later value is of another type, that is an error which names it.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from lowtide.data.disk.files import disk_errors
from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, name, select, text
from lowtide.data.ingestion.sources.guessed_table import GuessedTable
from lowtide.data.ingestion.sources.table import FILE, ROW, names_of
from lowtide.data.text.decoding import DecodingCounts, decoded_blocks
from lowtide.errors import LowtideError

_SEPARATORS = (",", "\t", ";", "|")
_HEAD = 1 << 20
"""Bytes at the beginning of a file in which its header must end."""
_BUFFER = 4 << 20
"""Bytes that each thread reads at once. DuckDB's own choice, 32 MB, is much of a small memory limit."""
_GROUP_ROWS = 48
"""Bits of a row's number among the files of one header."""
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class CsvFormat:
    """How the files are written."""

    encoding: str = "utf-8"
    missing_text: tuple[str, ...] = ("",)
    """What stands for a missing value."""
    decimal: str = "."

    @property
    def utf8(self) -> bool:
        """Whether DuckDB can read the files as they are."""
        return codecs.lookup(self.encoding).name in {"utf-8", "utf-8-sig", "ascii"}


@dataclass(frozen=True)
class _Header:
    names: tuple[str, ...]
    separator: str


class CsvTable(GuessedTable):
    """Rows of CSV files."""

    row_counted = " after the header"

    def __init__(self, duck: Duck, paths: Sequence[Path], wanted: set[str], form: CsvFormat) -> None:
        """Look at the first line of every file.

        Args:
            duck: Reads them.
            paths: The files, in their order.
            wanted: Columns that every file must have.
            form: How they are written.

        Raises:
            LowtideError: A file cannot be read, or lacks a column.
        """
        super().__init__(duck, paths)
        self._form = form
        self._wanted = wanted - {FILE}
        self._any_rows = False
        self._headers = tuple(self._header(path) for path in paths)
        if not self._any_rows:
            raise _no_header(paths[0], "it holds a header and no row" + " (the others too)" * (len(paths) > 1))
        self._readable = tuple(map(str, paths))
        self._copied = False

    @cached_property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns that all files have, and their types in the first rows of the largest."""
        shared = set.intersection(*(set(header.names) for header in self._headers))
        sniffed = {column: told for column, told in self._sniffed.items() if column in shared}
        return {FILE: column_type("VARCHAR"), **{column: column_type(told) for column, told in sniffed.items()}}

    def prepare(self, scratch: Path) -> None:
        """Write the files once more in UTF-8, where they are in another encoding."""
        if self._form.utf8 or self._copied:
            return
        made = []
        for number, path in enumerate(self._paths):
            copy = scratch / f"utf8-{number}.csv"
            with disk_errors(copy), copy.open("w", encoding="utf-8", newline="") as file:
                for block in self._decoded(path):
                    file.write(block)
            self._duck.real_names[str(copy)] = str(path)
            made.append(str(copy))
        self._readable = tuple(made)
        self._copied = True

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""
        if not self._form.utf8 and not self._copied:
            raise _no_header(
                self._paths[0],
                f"a pass over files in {self._form.encoding} is wanted before they are copied",
                "write the file in UTF-8",
            )
        return f"({' UNION ALL '.join(self._groups(wanted, numbered=numbered))})"

    def _of_file(self, number: int, wanted: Mapping[str, str]) -> str:
        return self._select([number], self._headers[number], wanted, numbered=True, group=0)

    def _groups(self, wanted: Mapping[str, str], *, numbered: bool) -> Iterator[str]:
        """A query for each run of files with one header."""
        numbers = range(len(self._paths))
        for group, (header, files) in enumerate(groupby(numbers, key=lambda number: self._headers[number])):
            yield self._select(list(files), header, wanted, numbered=numbered, group=group)

    def _select(
        self, files: list[int], header: _Header, wanted: Mapping[str, str], *, numbered: bool, group: int
    ) -> str:
        columns = [name(column) for column in wanted if column in header.names]
        if FILE in wanted and FILE not in header.names:
            listed = ", ".join(text(file) for file in names_of(self._paths))
            numbers = ", ".join(map(str, files))
            columns.append(f"list_extract([{listed}], [{numbers}][CAST(file_index AS BIGINT) + 1] + 1) AS {FILE}")
        if numbered:
            columns.append(f"({group}::BIGINT << {_GROUP_ROWS}) + row_number() OVER () AS {ROW}")
        types = {column: wanted.get(column) or self._sniffed.get(column, "VARCHAR") for column in header.names}
        types = {column: told if column in wanted else "VARCHAR" for column, told in types.items()}
        read = self._read([self._readable[number] for number in files], header, types)
        return " ".join(["SELECT", ", ".join(columns), "FROM", read])

    def _read(self, files: Sequence[str], header: _Header, types: Mapping[str, str]) -> str:
        dates = {option: told for option, told in self._date_formats.items() if told}
        options = {
            "auto_detect": "false",
            "buffer_size": str(_BUFFER),
            "columns": "{" + ", ".join(f"{text(column)}: {text(told)}" for column, told in types.items()) + "}",
            **{option: text(told) for option, told in dates.items()},
            **self._dialect(header),
        }
        listed = ", ".join(map(text, files))
        return f"read_csv([{listed}], {', '.join(f'{option} = {told}' for option, told in options.items())})"

    def _dialect(self, header: _Header) -> dict[str, str]:
        return {
            "header": "true",
            "delim": text(header.separator),
            "quote": "'\"'",
            "escape": "'\"'",
            "decimal_separator": text(self._form.decimal),
            "nullstr": f"[{', '.join(map(text, self._form.missing_text))}]",
        }

    @cached_property
    def _sniffed(self) -> dict[str, str]:
        return self._sniff[0]

    @cached_property
    def _date_formats(self) -> dict[str, str | None]:
        return {"dateformat": self._sniff[1], "timestampformat": self._sniff[2]}

    @cached_property
    def _sniff(self) -> tuple[dict[str, str], str | None, str | None]:
        """What DuckDB thinks of the first rows of the largest file."""
        number = max(range(len(self._paths)), key=lambda place: self._paths[place].stat().st_size)
        header = self._headers[number]
        options = ", ".join(f"{option} = {told}" for option, told in self._dialect(header).items())
        with TemporaryDirectory() as folder:
            path = self._paths[number]
            if not self._form.utf8:
                path = Path(folder) / "head.csv"
                head = next(self._decoded(self._paths[number]), "")
                self._duck.real_names[str(path)] = str(self._paths[number])
                path.write_text(head[: head.rfind("\n") + 1] or head, encoding="utf-8", newline="")
            wanted = {told: told for told in ("Columns", "DateFormat", "TimestampFormat")}
            try:
                columns, dates, timestamps = self._duck.rows(
                    select(wanted, f"sniff_csv({text(str(path))}, {options})")
                )[0]
            except LowtideError:
                # It does not say why; reading does.
                self._read_through(path, header)
                raise
            if len(columns) != len(header.names):
                self._read_through(path, header)
                raise _no_header(path, f"its rows have {len(columns)} values, its header {len(header.names)} columns")
        types = {column: found["type"] for column, found in zip(header.names, columns, strict=True)}
        return types, dates, timestamps

    def _read_through(self, path: Path, header: _Header) -> None:
        """Read every value as text, to find what is wrong with the file."""
        plain = {
            "auto_detect": "false",
            "columns": "{" + ", ".join(f"{text(column)}: 'VARCHAR'" for column in header.names) + "}",
            **self._dialect(header),
        }
        read = f"read_csv({text(str(path))}, {', '.join(f'{option} = {told}' for option, told in plain.items())})"
        self._duck.rows(select({"most": f"max({name(header.names[-1])})"}, read))

    def _header(self, path: Path) -> _Header:
        head = self._head(path)
        lines = (line for line in io.StringIO(head, newline="") if line.strip())
        if not next(lines, ""):
            raise _no_header(path, "it holds nothing but empty lines")
        self._any_rows = self._any_rows or next(lines, "") != ""
        found = [self._parsed(head, separator, path) for separator in self._separators(path)]
        header = max(found, key=lambda header: (len(self._wanted & set(header.names)), len(header.names)))
        twice = sorted({column for column in header.names if header.names.count(column) > 1})
        if twice:
            raise _no_header(path, f"its header has {twice[0]!r} twice")
        alike = {column.lower(): column for column in header.names}
        other = next((column for column in header.names if alike[column.lower()] != column), None)
        if other is not None:
            raise _no_header(path, f"its header has {other!r} and {alike[other.lower()]!r}, which differ by case alone")
        lacking = sorted(self._wanted - set(header.names))
        if lacking:
            raise LowtideError(
                what=f"{path} has no column {lacking[0]!r}: its header is {', '.join(map(repr, header.names[:30]))}",
                why="columns are found by their names in each file's first line",
                fix="use one of these names; a file without a header needs one",
            )
        return header

    @staticmethod
    def _separators(path: Path) -> Sequence[str]:
        return ("\t",) if {".tsv", ".tab"} & set(path.suffixes) else _SEPARATORS

    @staticmethod
    def _parsed(head: str, separator: str, path: Path) -> _Header:
        try:
            names = next(csv.reader(io.StringIO(head, newline=""), delimiter=separator), [])
        except csv.Error as error:
            raise _no_header(path, f"its first line cannot be read ({error})") from error
        # A column without a name, as pandas writes the one of its index, is called as DuckDB calls it.
        return _Header(tuple(column.strip() or f"column{place}" for place, column in enumerate(names)), separator)

    def _head(self, path: Path) -> str:
        if not self._form.utf8:
            return next(self._decoded(path), "")
        try:
            with pa.input_stream(str(path), compression="detect") as file:
                head: bytes = file.read(_HEAD)
        except (pa.ArrowException, OSError) as error:
            raise _no_header(path, f"it cannot be read ({error})") from error
        if head.startswith(_MARKS):
            raise _no_header(path, "it is written in UTF-16", 'say so: encoding="utf-16"')
        whole = head[: head.rfind(b"\n") + 1] or head
        try:
            return whole.removeprefix(codecs.BOM_UTF8).decode("utf-8")
        except UnicodeDecodeError as error:
            line = 1 + whole.count(b"\n", 0, error.start)
            raise _no_header(
                path,
                f"line {line} has bytes that are not UTF-8 ({error.object[error.start : error.end].hex(' ')})",
                'name the encoding of the files, as in encoding="cp1252"',
            ) from error

    def _decoded(self, path: Path) -> Iterator[str]:
        if path.suffix in {".gz", ".zst"}:
            raise _no_header(path, f"it is packed, and in {self._form.encoding}", "unpack it, or write it in UTF-8")
        return decoded_blocks(path, encoding=self._form.encoding, errors="strict", counts=DecodingCounts())


def _no_header(path: Path, what: str, fix: str = "correct the file, or leave it out of the sources") -> LowtideError:
    return LowtideError(
        what=f"{path} cannot be read as CSV: {what}",
        why="columns are found by their names in each file's first line",
        fix=fix,
    )
