"""A table that DuckDB can read: some files of one format, or an object in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType, kind_of
from lowtide.errors import LowtideError

ROW = "lowtide_row"
"""The column that numbers rows over all files, in their order."""
_HEAD = 1 << 20
FILE = "filename"
"""Where a source has no such column, each row's file: what makes each file a sequence."""


class Table(Protocol):
    """What a source of rows reads from."""

    types_guessed: bool
    """Whether the columns' types were read off the values, so that text is nothing else."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns and their types."""

    @property
    def rows(self) -> int | None:
        """How many there are; None where that is known only once they are read."""

    @property
    def rows_about(self) -> int:
        """How many there are, guessed where that is not known."""

    @property
    def bytes(self) -> int | None:
        """The size of the files; None where there are none."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """What the content follows from; None where that cannot be told."""

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory, about."""

    def prepare(self, scratch: Path) -> None:
        """Whatever has to be made before it can be read."""

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM.

        Args:
            wanted: Columns, and the DuckDB types as which text is best read; "" for the type as it is.
            numbered: With the column ROW.
        """

    def read_as(self, column: str, wanted: str) -> ColumnType:
        """The type in which the relation has a column, where it was wanted as this type."""

    def where(self, wanted: Mapping[str, str], condition: str, **tables: object) -> str | None:
        """File and row of the first row that meets a condition, which may name these tables; None where none does."""

    def batches(self, wanted: Mapping[str, str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, wanted as for `relation`, about so many rows at once, in order and in bounded memory."""

    def place_of(self, row: int) -> str:
        """Where a row is, by its number among all."""


def placed(
    error: LowtideError, table: Table, wanted: Mapping[str, str], unfit: Iterable[tuple[str, str]]
) -> LowtideError:
    """The same error with the row that it is about, where a column that was read as text does not fit.

    Args:
        error: What the query ended with.
        table: What was read.
        wanted: As what its columns were read.
        unfit: Columns, and in SQL whether a value of theirs does not fit; "": that cannot be.
    """
    for column, condition in unfit:
        place = table.where(wanted, condition) if condition else None
        if place is not None:
            return LowtideError(what=f"{place}, column {column!r}: {error.what}", why=error.why, fix=error.fix)
    return error


Types: TypeAlias = Mapping[str, pa.DataType]


def check_types(paths: Sequence[Path], types: Sequence[Types]) -> None:
    """See that all files have the columns that are asked for, as values of one kind: numbers, text or times.

    Args:
        paths: The files.
        types: What each has of the columns that are asked for.

    Raises:
        LowtideError: A file lacks a column that another has, or has text where another has numbers.
    """
    together: dict[str, tuple[Path, pa.DataType]] = {}
    for path, found in zip(paths, types, strict=True):
        for column, kind in found.items():
            first = together.setdefault(column, (path, kind))
            if pa.types.is_null(first[1]):
                together[column] = (path, kind)
            elif not pa.types.is_null(kind) and kind_of(str(kind)) != kind_of(str(first[1])):
                raise _unlike(f"{path} has the column {column!r} as {kind}, and {first[0]} has it as {first[1]}")
    for path, found in zip(paths, types, strict=True):
        lacking = sorted(set(together) - set(found))
        if lacking:
            raise _unlike(f"{path} has no column {lacking[0]!r}, which {together[lacking[0]][0]} has")


def _unlike(what: str) -> LowtideError:
    return LowtideError(
        what=what,
        why="all files of an ingest have the columns that are asked for, as numbers, text or times",
        fix="correct the file, or leave it out of the sources",
    )


def names_of(paths: Sequence[Path]) -> list[str]:
    """Names for files as short as tells them apart: by their paths below the folder that holds all of them."""
    from lowtide.data.text.reader import name_files  # noqa: PLC0415 - only where files are sequences

    return [file.name for file in name_files(paths)]


def identity_of(paths: Sequence[Path]) -> Mapping[str, object]:
    """What the content of files follows from, as far as can be seen without reading them."""
    return {str(path.resolve()): [status.st_size, status.st_mtime_ns] for path in paths for status in [path.stat()]}


def rows_guessed(paths: Sequence[Path]) -> int:
    """About how many lines files of text have, from the beginning of the largest."""
    largest = max(paths, key=lambda path: path.stat().st_size)
    packed = largest.suffix in {".gz", ".zst"}
    with largest.open("rb") as file:
        head = file.read(_HEAD)
    line = 20 if packed else len(head) / max(1, head.count(b"\n"))
    return int(sum(path.stat().st_size for path in paths) / max(1, line))
