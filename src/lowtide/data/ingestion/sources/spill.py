"""Tables that are made while they are read, Arrow readers and lazy Polars frames: once to disk, in bounded memory.

They can be read once, or only by computing them anew; sorting, looking for a row, and a pass for a vocabulary read more
often than that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lowtide.data.disk.files import disk_errors
from lowtide.data.ingestion.sources.parquet_table import ParquetTable
from lowtide.errors import LowtideError

_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 1 << 17


class SpilledTable(ParquetTable):
    """Rows of a file that nobody but the ingest knows."""

    files_known = False


def is_lazy(source: object) -> bool:
    """Whether it is a table that is not there yet."""
    polars = sys.modules.get("polars")
    return isinstance(source, pa.RecordBatchReader) or (polars is not None and isinstance(source, polars.LazyFrame))


def spill(source: Any, path: Path) -> Path:  # noqa: ANN401 - as `is_lazy`
    """Write all of it to a Parquet file.

    Raises:
        LowtideError: The disk is full, or Parquet has no such types.
    """
    with disk_errors(path):
        if isinstance(source, pa.RecordBatchReader):
            _write(source, path)
        else:
            _sink(source, path)
    return path


def _sink(frame: Any, path: Path) -> None:  # noqa: ANN401 - polars.LazyFrame
    from polars.exceptions import PolarsError  # noqa: PLC0415 - it made the frame

    try:
        frame.sink_parquet(path, compression="lz4", row_group_size=_GROUP_ROWS)
    except PolarsError as error:
        raise LowtideError(
            what=f"the lazy frame cannot be computed and put on disk: {error}",
            why="its rows are sorted and looked up, and are not computed anew each time",
            fix=f"free some disk below {path.parent.parent} where it is full; otherwise correct what is computed",
        ) from error


def _write(reader: pa.RecordBatchReader, path: Path) -> None:
    try:
        writer = pq.ParquetWriter(path, reader.schema, compression="lz4")
    except pa.ArrowException as error:
        raise LowtideError(
            what=f"the table cannot be put on disk while it is read: {error}",
            why="a reader gives its rows once, and they are sorted and looked up",
            fix="select the columns that are needed, or convert them to numbers, text, times or lists",
        ) from error
    with writer:
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in reader:
            for part in _parts(batch):
                waiting.append(part)
                rows, size = rows + part.num_rows, size + part.nbytes
                if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(waiting))
                    waiting, rows, size = [], 0, 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))


def _parts(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A large batch in several."""
    most = max(1, min(_GROUP_ROWS, _GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
    return [batch.slice(first, most) for first in range(0, batch.num_rows, most)]
