"""Parquet files as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, explained, name, select, text
from lowtide.data.ingestion.sources.table import FILE, ROW, check_types, identity_of, names_of

_BUFFER = 1 << 20
_FILE_ROWS = 40
"""Bits of a row's number in its file."""


class ParquetTable:
    """Rows of Parquet files."""

    types_guessed = False
    files_known: ClassVar[bool] = True
    """Whether the files are the user's own, to be named in messages and to know the data by."""

    def __init__(self, duck: Duck, paths: Sequence[Path], wanted: set[str]) -> None:
        """Look at the end of every file.

        Args:
            duck: Reads them.
            paths: The files, in their order.
            wanted: Columns that every file must have.

        Raises:
            LowtideError: A file is not whole, or lacks a column that the first one has.
        """
        self._duck = duck
        self._paths = paths
        self._wanted = wanted
        self.rows: int | None = 0
        self.row_bytes = 0
        """Bytes of a row as they lie in memory, about."""
        self._file_ends: list[int] = []
        """Rows of each file and those before it."""
        self._look(paths)
        self.bytes: int | None = sum(path.stat().st_size for path in paths) if self.files_known else None

    @cached_property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns and their types."""
        found = {column: column_type(told) for column, told in self._duck.types(self._read()).items()}
        return {FILE: column_type("VARCHAR"), **found} if self.files_known else found

    @property
    def rows_about(self) -> int:
        """How many rows there are."""
        return self.rows or 0

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times."""
        return identity_of(self._paths) if self.files_known else None

    @property
    def paths(self) -> Sequence[Path]:
        """The files."""
        return self._paths

    def prepare(self, scratch: Path) -> None:
        """Nothing has to be made."""

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""
        columns = [name(column) for column in wanted if column != FILE or FILE in self._own]
        if FILE in wanted and FILE not in self._own:
            listed = ", ".join(text(file) for file in names_of(self._paths))
            columns.append(f"list_extract([{listed}], CAST(file_index + 1 AS BIGINT)) AS {FILE}")
        if numbered:
            columns.append(f"(CAST(file_index AS BIGINT) << {_FILE_ROWS}) + file_row_number AS {ROW}")
        return " ".join(["(SELECT", ", ".join(columns), "FROM", self._read(), ")"])

    def read_as(self, column: str, wanted: str) -> ColumnType:  # noqa: ARG002 - its own types
        """The type in which the relation has a column."""
        return self.columns[column]

    def where(self, wanted: Mapping[str, str], condition: str, **tables: object) -> str | None:
        """File and row of the first row that meets a condition."""
        found = self._duck.rows(
            select({ROW: ROW}, self.relation(wanted, numbered=True), where=condition, limit=1), **tables
        )
        if not found:
            return None
        file, row = divmod(found[0][0], 1 << _FILE_ROWS)
        return self._place(file, row)

    def batches(self, wanted: Mapping[str, str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, so many rows at once, in order; DuckDB takes 2,048 at least, which may be much."""
        meter.begin("writing")
        columns = [column for column in wanted if column != FILE or FILE in self._own]
        for path, called in zip(self._paths, names_of(self._paths), strict=True):
            with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                    named = len(columns) < len(wanted)
                    yield batch.append_column(FILE, pa.array([called] * batch.num_rows)) if named else batch

    def place_of(self, row: int) -> str:
        """Where a row is, by its number among all."""
        file = int(np.searchsorted(self._file_ends, row, side="right"))
        before = self._file_ends[file - 1] if file else 0
        return self._place(file, row - before)

    def _place(self, file: int, row: int) -> str:
        return f"{self._paths[file]}, row {row + 1}" if self.files_known else f"row {row} (counted from 0)"

    @cached_property
    def _own(self) -> set[str]:
        return set(pq.read_schema(self._paths[0]).names)

    def _read(self) -> str:
        listed = ", ".join(text(str(path)) for path in self._paths)
        # Otherwise the types of the first file go for all: 2.5 would become 2 where it has whole numbers.
        return f"read_parquet([{listed}]{', union_by_name = true' if self._types_differ else ''})"

    def _look(self, paths: Sequence[Path]) -> None:
        found: list[dict[str, pa.DataType]] = []
        size = 0
        for path in paths:
            try:
                metadata = pq.read_metadata(path)
                schema = metadata.schema.to_arrow_schema()
            except (pa.ArrowException, OSError) as error:
                raise explained(f"no magic bytes found in file '{path}': {error}", {}, 0) from error
            found.append({column: schema.field(column).type for column in self._wanted & set(schema.names)})
            assert self.rows is not None
            self.rows += metadata.num_rows
            self._file_ends.append(self.rows)
            size += sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        check_types(paths, found)
        self._types_differ = any(types != found[0] for types in found)
        self.row_bytes = size // max(1, self.rows or 0)
