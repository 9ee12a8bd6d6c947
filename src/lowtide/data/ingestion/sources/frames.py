"""Tables in memory: pandas, Polars and Arrow, and Arrow files, which are mapped or scanned."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.column import ColumnType, column_type
from lowtide.data.ingestion.sources.duck import Duck, name, select
from lowtide.data.ingestion.sources.table import ROW, check_types, identity_of
from lowtide.errors import LowtideError

_NAME = "lowtide_frame"
_SAMPLED = 64


class FrameTable:
    """Rows of an object in memory."""

    types_guessed = False

    def __init__(self, duck: Duck, frame: object, paths: Sequence[Path] = ()) -> None:
        """Take what `is_frame` knows, and the files that it was made of, if it was."""
        self._duck = duck
        self._paths = paths
        self._frame: Any = _scannable(frame)
        _check_names(self._frame)
        duck.register(_NAME, self._frame)
        self.rows: int | None = None if _is_dataset(self._frame) else len(self._frame)
        self.bytes: int | None = sum(path.stat().st_size for path in paths) or None

    @cached_property
    def columns(self) -> Mapping[str, ColumnType]:
        """Columns and their types."""
        return {column: column_type(told) for column, told in self._duck.types(_NAME).items()}

    @property
    def rows_about(self) -> int:
        """How many rows there are."""
        return int(self._frame.count_rows()) if self.rows is None else self.rows

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times; of what is in memory it cannot be told."""
        return identity_of(self._paths) if self._paths else None

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in memory, about."""
        if isinstance(self._frame, pa.Table):
            return int(self._frame.nbytes) // max(1, len(self._frame))
        if _is_dataset(self._frame):
            return max(1, int(self._head.nbytes) // max(1, len(self._head)))
        return max(1, int(_in_arrow(self._frame.head(_SAMPLED)).nbytes) // _SAMPLED)

    @cached_property
    def _head(self) -> pa.Table:
        return self._frame.head(_SAMPLED)

    def prepare(self, scratch: Path) -> None:
        """Nothing has to be made."""

    def relation(self, wanted: Mapping[str, str], *, numbered: bool = False) -> str:
        """What stands behind FROM."""
        columns = [name(column) for column in wanted]
        if numbered:
            columns.append(f"row_number() OVER () AS {ROW}")
        return " ".join(["(SELECT", ", ".join(columns), "FROM", _NAME, ")"])

    def read_as(self, column: str, wanted: str) -> ColumnType:  # noqa: ARG002 - its own types
        """The type in which the relation has a column."""
        return self.columns[column]

    def where(self, wanted: Mapping[str, str], condition: str, **tables: object) -> str | None:
        """The first row that meets a condition."""
        found = self._duck.rows(
            select({ROW: ROW}, self.relation(wanted, numbered=True), where=condition, limit=1), **tables
        )
        return self.place_of(found[0][0] - 1) if found else None

    def place_of(self, row: int) -> str:
        """Where a row is, by its number."""
        return f"row {row} (counted from 0)"

    def batches(self, wanted: Mapping[str, str], rows: int, meter: Meter) -> Iterator[pa.RecordBatch]:
        """Some columns, so many rows at once, in order."""
        meter.begin("writing")
        frame = self._frame
        if _is_dataset(frame):
            yield from frame.to_batches(columns=list(wanted), batch_size=rows, batch_readahead=1, fragment_readahead=1)
        elif isinstance(frame, pa.Table):
            yield from frame.select(list(wanted)).to_batches(max_chunksize=rows)
        else:
            for start in range(0, len(frame), rows):
                yield from _in_arrow(frame.iloc[start : start + rows][list(wanted)]).combine_chunks().to_batches()


def is_frame(source: object) -> bool:
    """Whether it is a table in memory."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return True
    return _is_dataset(source) or _is_of("pandas", "DataFrame", source) or _is_of("polars", "DataFrame", source)


def arrow_files(paths: Sequence[Path], wanted: set[str]) -> Any:  # noqa: ANN401 - pyarrow.dataset.Dataset
    """Arrow IPC files, which are read when they are wanted.

    Args:
        paths: The files, in their order.
        wanted: Columns that every file must have.

    Raises:
        LowtideError: One is no whole Arrow file, or lacks a column.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 - brings pandas, where that is installed

    try:
        found = ds.dataset([str(path) for path in paths], format="ipc")
        schemas = [fragment.physical_schema for fragment in found.get_fragments() if fragment.count_rows() >= 0]
        # Otherwise the types of the first file go for all.
        together = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise LowtideError(
            what=f"{', '.join(map(str, paths[:3]))} cannot be read as Arrow files: {error}",
            why="an Arrow file ends with what says what is in it; streams, and files cut short, have no such end",
            fix="write it again as an Arrow file, or leave it out of the sources",
        ) from error
    check_types(paths, [{name: schema.field(name).type for name in wanted & set(schema.names)} for schema in schemas])
    return ds.dataset([str(path) for path in paths], schema=together, format="ipc")


def _check_names(frame: Any) -> None:  # noqa: ANN401 - as DuckDB scans it
    names = [str(name) for name in (frame.columns if _is_of("pandas", "DataFrame", frame) else frame.schema.names)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LowtideError(
            what=f"the table has two columns {twice[0]!r}",
            why="columns are found by their names",
            fix="rename one of them, or leave it out of the table",
        )


def _scannable(frame: Any) -> Any:  # noqa: ANN401 - of packages that need not be there
    """The same table as DuckDB scans it."""
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if _is_of("polars", "DataFrame", frame):
        return frame.to_arrow()
    return frame


def _in_arrow(frame: Any) -> pa.Table:  # noqa: ANN401 - pandas.DataFrame
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException as error:
        raise LowtideError(
            what=f"the table holds what is no column of numbers, text or lists: {error}",
            why="a cell holds the list of a sequence's steps; with several features a step, a list of lists",
            fix='make lists of arrays with several axes: table["x"] = table["x"].map(list)',
        ) from error


def _is_dataset(source: object) -> bool:
    return _is_of("pyarrow.dataset", "Dataset", source)


def _is_of(package: str, kind: str, source: object) -> bool:
    """Whether it is of a package's class; what is not imported yet made no object."""
    module = sys.modules.get(package)
    return module is not None and isinstance(source, getattr(module, kind))
