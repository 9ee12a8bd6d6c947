"""Makes the data that benchmarks of `lowtide.data` read. Runs inside a child, since making holds more than reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lowtide.data import Field, Schema, StoreWriter

INPUTS = tuple(f"x{number}" for number in range(8))
"""Columns of a table, beside user, t and y."""
ROW_BYTES = {"parquet": 46, "csv": 186}
"""Of a row in a file, about. Text has every digit of float64, as pandas writes it."""
BLOCK_ROWS = 1 << 20
FILES = 8
SIGMA, MEDIAN = 1.0, 100.0
"""Of log-normal lengths."""
WIDTH = 16
"""Features of a step where loading is measured."""

Ints = NDArray[np.int64]


def log_normal_lengths(count: int, seed: int = 0) -> Ints:
    """Lengths of sequences, at least 1."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEDIAN), SIGMA, count)
    return np.maximum(1, drawn).astype(np.int64)


def make_table(folder: str, form: Literal["parquet", "csv"], size: int) -> dict[str, int]:
    """Write a table of one row a step into several files, its rows all shuffled; return what there is of it."""
    Path(folder).mkdir()
    rows = size // ROW_BYTES[form]
    files = [Path(folder) / f"part{number}.{form}" for number in range(FILES)]
    bounds = np.linspace(0, rows, FILES + 1, dtype=np.int64).tolist()
    shuffled = _Shuffled(rows)
    for path, first, last in zip(files, bounds[:-1], bounds[1:], strict=True):
        _write_blocks(path, form, shuffled.blocks(first, last))
    return {"rows": rows, "bytes": sum(path.stat().st_size for path in files)}


class _Shuffled:
    """Rows of log-normally long sequences, in an order that knows nothing of them."""

    def __init__(self, rows: int) -> None:
        self._generator = np.random.default_rng(1)
        lengths = log_normal_lengths(int(rows / MEDIAN) + 1)  # the mean is beyond the median: these are enough
        self._starts = np.cumsum(lengths) - lengths
        self._users = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[:rows]
        self._order = np.arange(rows, dtype=np.int32)
        self._generator.shuffle(self._order)

    def blocks(self, first: int, last: int) -> Iterator[pa.Table]:
        """Rows from `first` to before `last`, some at a time."""
        for start in range(first, last, BLOCK_ROWS):
            places = self._order[start : min(last, start + BLOCK_ROWS)]
            user = self._users[places].astype(np.int64)
            numbers = {name: self._generator.standard_normal(len(places)) for name in (*INPUTS, "y")}
            yield pa.table({"user": user, "t": places - self._starts[user], **numbers})


def _write_blocks(path: Path, form: Literal["parquet", "csv"], blocks: Iterator[pa.Table]) -> None:
    writer: Any = None
    for block in blocks:
        table = block.cast(_single(block.schema)) if form == "parquet" else block
        if writer is None:
            make = pq.ParquetWriter if form == "parquet" else pyarrow.csv.CSVWriter
            writer = make(path, table.schema)
        writer.write_table(table)
    assert writer is not None, "a file without rows"
    writer.close()


def _single(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [(field.name, pa.float32() if pa.types.is_floating(field.type) else field.type) for field in schema]
    )


def make_many(path: str, sequences: int) -> None:
    """Write a store of very many short sequences."""
    generator = np.random.default_rng(0)
    block = 100_000
    schema = Schema(
        (Field("x", "inputs", "step", "float32", 4), Field("y", "targets", "sequence", "float32", 0)), "string"
    )
    with StoreWriter(path, schema) as writer:
        for first in range(0, sequences, block):
            lengths = generator.integers(1, 4, min(block, sequences - first))
            names = pa.array(np.arange(first, first + len(lengths))).cast(pa.string())
            x = generator.random(4 * int(lengths.sum()), dtype=np.float32)
            y = pa.array(generator.random(len(lengths), dtype=np.float32))
            writer.add_rows(pa.record_batch([names, _ragged(x, lengths, 4), y], schema=schema.arrow))
        writer.commit()


def make_lengths(path: str, sequences: int) -> None:
    """Write a store of log-normal lengths whose content does not matter."""
    schema = Schema((Field("x", "inputs", "step", "int8", 0),), "int64")
    lengths = log_normal_lengths(sequences)
    with StoreWriter(path, schema) as writer:
        x = np.arange(int(lengths.sum())).astype(np.int8)
        writer.add_rows(pa.record_batch([pa.array(np.arange(sequences)), _ragged(x, lengths, 0)], schema=schema.arrow))
        writer.commit()


def make_loadable(store: str, dataset: str, sequences: int) -> dict[str, int]:
    """Write the same sequences as a store and as datasets of Hugging Face, in two layouts."""
    from datasets import Dataset, disable_progress_bars  # noqa: PLC0415 - takes long to load, and is wanted here alone

    disable_progress_bars()
    generator = np.random.default_rng(0)
    lengths = log_normal_lengths(sequences)
    steps = int(lengths.sum())
    x = generator.standard_normal(steps * WIDTH, np.float32)
    y = generator.standard_normal(steps, np.float32)
    schema = Schema(
        (Field("x", "inputs", "step", "float32", WIDTH), Field("y", "targets", "step", "float32", 0)), "int64"
    )
    with StoreWriter(store, schema) as writer:
        columns = [pa.array(np.arange(sequences)), _ragged(x, lengths, WIDTH), _ragged(y, lengths, 0)]
        writer.add_rows(pa.record_batch(columns, schema=schema.arrow))
        writer.commit()
    # One flat list a sequence, which its NumPy and torch formats give as one array, and a list of steps, which they do
    # not, as `Dataset.from_dict` or `from_generator` make it of two axes.
    for layout, inputs in (("flat", _ragged(x, lengths * WIDTH, 0)), ("nested", _ragged(x, lengths, WIDTH))):
        value = pa.list_(pa.float32(), WIDTH) if layout == "nested" else pa.float32()
        targets = _ragged(y, lengths, 0).cast(pa.list_(pa.float32()))
        Dataset(pa.table({"x": inputs.cast(pa.list_(value)), "y": targets})).save_to_disk(f"{dataset}/{layout}")
    return {"steps": steps}


def _ragged(values: NDArray[Any], lengths: Ints, width: int) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = pa.array(values)
    return pa.LargeListArray.from_arrays(offsets, pa.FixedSizeListArray.from_arrays(flat, width) if width else flat)
