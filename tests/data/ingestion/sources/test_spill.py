"""Tables that are made while they are read go to disk once, in bounded memory, and leave nothing there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tests.data.ingesting_cases import content, long_table, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": ["x"]}
TABLE = pa.Table.from_pandas(long_table(30, 40), preserve_index=False)


def reader(table: pa.Table, rows: int = 7) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rows))


def lazy(table: pa.Table) -> pl.LazyFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.lazy()


@pytest.mark.parametrize("made", [reader, lazy])
def test_they_give_what_the_table_gives(tmp_path: Path, made: Any) -> None:  # noqa: ANN401 - either
    store = quietly(made(TABLE), tmp_path / "deep" / "store", **ASKED, split={"train": 0.5, "test": 0.5})
    assert content(store) == content(quietly(TABLE, tmp_path / "whole", **ASKED))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "whole"]


@pytest.mark.parametrize("made", [reader, lazy])
def test_lists_and_texts_go_through_them(tmp_path: Path, made: Any) -> None:  # noqa: ANN401 - either
    table = pa.table({"u": ["a", "b"], "x": [[1.0, 2.0], [3.0]], "s": ["low", "tide"]})
    assert content(quietly(made(table), tmp_path / "lists", sequence="u", inputs="x")) == {
        "a": {"x": [1.0, 2.0]},
        "b": {"x": [3.0]},
    }
    texts = quietly(made(table), tmp_path / "texts", sequence="u", inputs="s", text="characters")
    assert texts.lengths.tolist() == [3, 4]


@pytest.mark.parametrize("made", [reader, lazy])
def test_a_row_that_does_not_fit_is_named_by_its_number(tmp_path: Path, made: Any) -> None:  # noqa: ANN401 - either
    table = TABLE.set_column(2, "x", pa.array([*range(1199), None], pa.float64()))
    with refused(tmp_path, "row 1199 (counted from 0)", "the value is missing"):
        quietly(made(table), tmp_path / "store", **ASKED)
    with refused(tmp_path, "'nope', which the source does not have"):
        quietly(made(TABLE), tmp_path / "store", sequence="nope", inputs="x")


def test_an_error_of_whoever_makes_the_rows_leaves_nothing_behind(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=500)[:1]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quietly(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), tmp_path / "store", **ASKED)
    assert list(tmp_path.iterdir()) == []


def test_a_lazy_frame_that_cannot_be_computed_is_an_error_of_ours(tmp_path: Path) -> None:
    frame = lazy(TABLE).with_columns(pl.lit("abc").cast(pl.Int64).alias("x"))
    with refused(tmp_path, "lazy frame cannot be computed"):
        quietly(frame, tmp_path / "store", **ASKED)


GROWTH = """
import sys
import numpy as np
import pyarrow as pa
import lowtide

rows = 1 << 16

def batch(number):
    at = np.arange(number * rows, (number + 1) * rows)
    return pa.record_batch({"u": at % 50, "t": at, **{f"x{k}": at * 0.5 for k in range(8)}})

def growth(batches):
    made = pa.RecordBatchReader.from_batches(batch(0).schema, map(batch, range(batches)))
    with lowtide.memory.watch() as peak:
        lowtide.ingest(made, f"{sys.argv[1]}/{batches}", sequence="u", order="t", inputs=[f"x{k}" for k in range(8)],
                       progress=False, memory_limit="288MiB")
    return peak.bytes

small = growth(1)
print(growth(80) - small, 80 * batch(0).nbytes)
"""


def test_a_reader_of_any_size_takes_bounded_memory(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", GROWTH, tmp_path], check=True, capture_output=True, text=True)
    grown, size = map(int, child.stdout.split())
    assert grown < 288 << 20 < size
