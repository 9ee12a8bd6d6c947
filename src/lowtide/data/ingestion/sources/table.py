"""A table that DuckDB can read: some files of one format, or an object in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType

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

    def batches(self, columns: Sequence[str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, about so many rows at once, in order and in bounded memory."""

    def place_of(self, row: int) -> str:
        """Where a row is, by its number among all."""


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
