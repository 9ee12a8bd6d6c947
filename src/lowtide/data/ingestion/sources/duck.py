"""DuckDB with a limit on its memory, streaming what it finds, its errors said in words that help.

Results are taken by a thread one batch ahead, so that DuckDB goes on while a batch is written, and so that the caller's
thread can tell how far a long sort has come, and be interrupted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.whole_numbers import NOT_WHOLE
from lowtide.errors import LowtideError

_THREAD_BYTES = 64 << 20
"""Memory that a thread of a sort needs, whatever the data."""
_POLLED_SECONDS = 0.2
_SETTINGS = {
    # Nothing is fetched from anywhere, no variable of the program is taken for a table.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_FILE = re.compile(r"file = (.+)|in file \"(.+?)\"|file '(.+?)'|stream: (.+)|File '(.+?)'")
_LINE = re.compile(r"CSV Error on Line: (\d+)|in (?:line|record/value) (\d+)")
_NO_JSON = "Malformed JSON"
_COLUMN = re.compile(r'[Cc]olumn "(.+?)"|source column (.+)')


class UnconvertedError(LowtideError):
    """A value is not of the type that it was read as."""


class Duck:
    """A connection of its own; to be used in a `with` block."""

    def __init__(self, memory: int) -> None:
        """Stay below about this many bytes."""
        threads = max(1, min(_cores(), memory // _THREAD_BYTES))
        config: dict[str, str | bool | int | float | list[str]] = {
            **_SETTINGS,
            "memory_limit": f"{memory >> 20}MiB",
            "threads": threads,
            "temp_directory": "",
        }
        self._connection = duckdb.connect(config=config)
        # A connection with an open result answers nothing else: questions are asked aside.
        self._aside = self._connection.cursor()
        # Prefetching takes whole row groups at once, whatever the limit on memory.
        self._connection.execute("SET disable_parquet_prefetching = true")
        self._connection.execute("SET enable_progress_bar = true")
        self._connection.execute("SET enable_progress_bar_print = false")
        # Times with a zone come in that of the machine otherwise, and a split at a date would depend on it.
        self._connection.execute("SET TimeZone = 'UTC'")
        self.memory = memory
        self.real_names: dict[str, str] = {}
        """For files that were copied to be read: what the user calls them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._aside.close()
        self._connection.close()

    def spill_to(self, folder: Path) -> None:
        """Put what does not fit the memory into this folder."""
        folder.mkdir(exist_ok=True)
        self._connection.execute(f"SET temp_directory = {text(str(folder))}")

    def register(self, name: str, table: object) -> None:
        """Make an object in memory a table."""
        with self._errors_told():
            self._connection.register(name, table)
            self._aside.register(name, table)

    def rows(self, sql: str, **tables: object) -> list[tuple[Any, ...]]:
        """All rows of a small result; also while another result is being streamed.

        Args:
            sql: A query.
            tables: Objects in memory that it names.

        Raises:
            LowtideError: The query cannot be answered.
        """
        with self._errors_told():
            for name, table in tables.items():
                self._aside.register(name, table)
            return self._aside.execute(sql).fetchall()

    def types(self, relation: str) -> dict[str, str]:
        """The columns of what can stand behind FROM, and their types."""
        return {row[0]: row[1] for row in self.rows(f"DESCRIBE FROM {relation}")}

    def stream(self, sql: str, batch_rows: int, *, in_order: bool, meter: Meter) -> Iterator[pa.RecordBatch]:
        """The result in batches, in bounded memory.

        Args:
            sql: A query.
            batch_rows: About how many rows come at once.
            in_order: Whether rows without ORDER BY come as they are in the source.
            meter: Is told how far the query has come until the first batch is there.

        Raises:
            LowtideError: A file cannot be read, memory or disk do not suffice.
        """
        self._connection.execute(f"SET preserve_insertion_order = {str(in_order).lower()}")
        with ThreadPoolExecutor(1) as pool, self._errors_told():
            reader: list[pa.RecordBatchReader] = []

            def fetch() -> pa.RecordBatch | None:
                if not reader:
                    # Not execute(...).to_arrow_reader(), which holds the whole result in memory.
                    reader.append(self._connection.sql(sql).to_arrow_reader(batch_rows))
                return next(reader[0], None)

            ahead: Future[pa.RecordBatch | None] = pool.submit(fetch)
            try:
                while not ahead.done():
                    wait([ahead], _POLLED_SECONDS)
                    self._tell(meter)
                meter.begin("writing")
                while (batch := ahead.result()) is not None:
                    ahead = pool.submit(fetch)
                    if batch.num_rows:
                        yield batch
            finally:
                if not ahead.done():
                    self._connection.interrupt()
                    wait([ahead])
                reader.clear()

    def _tell(self, meter: Meter) -> None:
        percent = self._connection.query_progress()
        if percent >= 0:
            meter.reached(percent / 100)

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise explained(str(error), self.real_names, self.memory) from error


def name(column: str) -> str:
    """A column's name in SQL."""
    return '"' + column.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def select(
    columns: Mapping[str, str],
    relation: str,
    *,
    where: str | None = None,
    order: Sequence[str] = (),
    limit: int | None = None,
) -> str:
    """A query: expressions by the names that they get, of what can stand behind FROM."""
    parts = ["SELECT", ", ".join(f"{expression} AS {name(alias)}" for alias, expression in columns.items())]
    parts += ["FROM", relation]
    parts += ["WHERE", where] if where else []
    parts += ["ORDER BY", ", ".join(order)] if order else []
    return " ".join([*parts, *(["LIMIT", str(limit)] if limit is not None else [])])


def explained(message: str, real_names: Mapping[str, str], memory: int) -> LowtideError:
    """What went wrong in a query, from what DuckDB says about it."""
    first = message.splitlines()[0] if message else "no reason given"
    file, line, column = (_found(pattern, message) for pattern in (_FILE, _LINE, _COLUMN))
    if line and _NO_JSON in message:
        line = str(int(line) - 1)  # it counts the line behind
    place = ", ".join(
        [*([real_names.get(file, file)] if file else []), *([f"line {line}"] if line else [])]
        + ([f"column {column!r}"] if column else [])
    )
    for mark, tell in _EXPLAINED.items():
        if mark in message:
            what, why, fix = tell(message, memory)
            kind = UnconvertedError if tell in {_unconverted, _not_whole} else LowtideError
            return kind(what=f"{place}: {what}" if place else what, why=why, fix=fix)
    return LowtideError(
        what=f"{place}: {_shortened(first)}" if place else _shortened(first),
        why="a source is read whole or not at all",
        fix="correct the file, or leave it out of the sources",
    )


Told = tuple[str, str, str]


def _ragged(message: str, _: int) -> Told:
    counts = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    found = f"{counts[2]} values where the header has {counts[1]} columns" if counts else "another number of values"
    return found, "values would end up in the wrong columns", "correct the line, or quote values that hold separators"


def _unconverted(message: str, _: int) -> Told:
    value = re.search(r"""Could not convert string (["'])(.*?)\1 to '?(\w+)""", message, re.DOTALL)
    what = f"{value[2]!r} is no {value[3]}" if value else _shortened(message.splitlines()[0])
    column = _found(_COLUMN, message) or "column"
    return (
        what,
        "the first rows of the column are of this type",
        (
            f"correct the value; or name it in missing_text, if it means that there is none; or read {column!r} as "
            'text: dtypes= says "category", or "text" for the sequence and order columns'
        ),
    )


def _not_whole(message: str, _: int) -> Told:
    value = re.search(rf'{NOT_WHOLE}: "(.*)"', message, re.DOTALL)
    return (
        f"{value[1] if value else 'a value'!r} is no whole number, as the first rows are",
        'it would be rounded; or "007" and "7" would become one name',
        (
            'correct the value; or say what the column is: dtypes= says "text" of the sequence column, "float64" of '
            "the order column or of a field"
        ),
    )


def _encoding(_: str, __: int) -> Told:
    return (
        "bytes that are not UTF-8",
        "text would be read as other characters",
        'name the encoding of the files, as in encoding="cp1252"',
    )


def _quote(_: str, __: int) -> Told:
    return (
        'a value begins with " and has no " at its end',
        "everything behind it would be taken for one value",
        "close the quote, or double quotes that belong to a value",
    )


def _memory(message: str, memory: int) -> Told:
    if "max_temp_directory_size" in message or "No space left" in message:
        return _disk(message, memory)
    return (
        f"sorting and reading do not get by with {memory >> 20} MiB",
        "many columns, long texts or large row groups need more at once",
        f'give more: memory_limit="{max(512, memory >> 19)}MiB"; or write the files with smaller row groups',
    )


def _disk(_: str, __: int) -> Told:
    return (
        "the disk is full: there is no room for what is sorted",
        "an ingest puts what does not fit the memory beside the store, and needs about the size of the values twice",
        "free some disk, or name an `out` on a disk with more room",
    )


def _parquet(_: str, __: int) -> Told:
    return (
        "no whole Parquet file",
        "its end, which says what is in it, is not there: it was not written or copied to the end",
        "write or copy it again, or leave it out of the sources",
    )


def _no_json(message: str, _: int) -> Told:
    found = re.search(r"at byte (\d+) in [a-z/]+ \d+: ([^.]*)", message)
    return (
        f"no JSON, {found[2]} at its byte {found[1]}" if found else "no JSON",
        "a source is read whole or not at all",
        "correct the line; one object a line, or one array of objects, is read",
    )


def _missing_column(message: str, _: int) -> Told:
    return (
        _shortened(" ".join(message.splitlines()[:6])),
        "all files of an ingest have the same columns",
        "correct the file, or ingest files of other columns into a store of their own",
    )


_EXPLAINED: Mapping[str, Callable[[str, int], Told]] = {
    "Expected Number of Columns": _ragged,
    "Could not convert string": _unconverted,
    NOT_WHOLE: _not_whole,
    "Invalid unicode": _encoding,
    _NO_JSON: _no_json,
    "unterminated quote": _quote,
    "No space left": _disk,
    "Out of Memory": _memory,
    "magic bytes": _parquet,
    "too small to be a Parquet": _parquet,
    "Schema mismatch": _missing_column,
}


def _found(pattern: re.Pattern[str], message: str) -> str | None:
    match = pattern.search(message)
    return next((group.strip() for group in match.groups() if group), None) if match else None


def _shortened(told: str, most: int = 300) -> str:
    plain = re.sub(r"^[A-Z][A-Za-z]+( [A-Z][A-Za-z]+)* Error: ", "", told.strip())
    return plain if len(plain) <= most else plain[:most] + "..."


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
