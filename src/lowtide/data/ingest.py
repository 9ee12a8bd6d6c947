"""The door of ingestion: data of any size and shape become a store on disk, in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lowtide.data.disk.writer import SHARD_BYTES
from lowtide.data.ingestion.progress import Line, Watcher
from lowtide.data.ingestion.request import Columns, Duplicates, Layout, read_request
from lowtide.data.store import Store

MISSING_TEXT = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What stands for a missing value in CSV files, unless something else is said."""


def ingest(
    sources: Any,  # noqa: ANN401 - files, tables, arrays, or an iterable
    out: str | Path,
    *,
    sequence: str | None = None,
    order: str | None = None,
    inputs: Columns | None = None,
    target: Columns | None = None,
    label: Columns | None = None,
    static: Columns | None = None,
    text: object = None,
    unit: str | int = "line",
    separator: str | None = None,
    layout: Layout = "auto",
    horizon: int = 0,
    dtypes: str | Mapping[str, str] | None = None,
    missing: object = "error",
    duplicates: Duplicates = "error",
    split: Any = None,  # noqa: ANN401 - a rule, fractions, or names by part
    transforms: Any = None,  # noqa: ANN401 - names, options, objects
    memory_limit: int | str | None = None,
    shard_bytes: int | str = SHARD_BYTES,
    encoding: str = "utf-8",
    missing_text: Sequence[str] = MISSING_TEXT,
    decimal: str = ".",
    append: bool = False,
    resume: bool = True,
    progress: bool | Watcher | None = None,
) -> Store:
    """Make a store of sequences from files, tables, arrays or a generator.

    Tables with one row a step are sorted by DuckDB, on disk where memory does not suffice. Nothing is dropped or filled
    without being asked for, counted, reported and noted in the store's manifest; sequences without a step are dropped,
    and counted. Until everything is written, there is no store: an interrupted ingest is run again, and goes on behind
    what was written.

    Args:
        sources: A path, glob or folder, or a list of them: CSV, JSON Lines, Parquet, Arrow, NumPy or text files, of one
            format at a time. A table: pandas, Polars, Arrow; lazy frames and readers go through the disk. NumPy arrays:
            one series (steps, features), sequences (sequences, steps, features), a list of series, or a mapping of such
            by name. Or anything that gives sequences one by one, or a function that does:
            `{"id": "a", "x": array, "y": target}`.
        out: The store's folder, which is made; with a store in it, that store's next version.
        sequence: The column that says which sequence a row belongs to; its values are the sequences' names. Of tables
            with a row a sequence: its name. "filename" stands for each row's file, where there is no such column. None:
            one single series; or rows that are sequences, which are numbered.
        order: The column that the steps of a sequence are ordered by: numbers, dates or times. None: the order of files
            and rows.
        inputs: What a model is given at every step. A column ("x") makes a field without an axis of features; a list
            of columns one with an axis. In a list, columns of text become fields of their own, as codes of categories.
            `{"x": ["a", "b"], "shop": "shop"}` names the fields; unnamed, the field is "x".
        target: The same for what a model should give at every step; unnamed, the field is "y".
        label: The same for what it should give once a sequence; unnamed, the field is "y".
        static: The same for what it is given once a sequence; unnamed, the field is "static".
        text: How text becomes codes: "bytes", "characters", a tokenizer of `tokenizers` or its file, or
            `{"train": "bpe", "size": 8000}`. The text is that of text files, or of the one column named as `inputs`.
            Characters and tokens are learnt from the training part of a split alone; what it does not have is unknown.
            Beside a tokenizer, `{"tokenizer": "characters", "errors": "replace", "empty": "keep"}` says what becomes of
            bytes of a text file that are not of its encoding, an error unless "replace", and of blank texts: "drop",
            "keep" or "error".
        unit: In text files, what a sequence is: "line", "document" (a file, or what lies between separators), or a
            number of codes.
        separator: In text files, what lies between two documents.
        layout: "long": a row a step. "series": the same with one sequence. "list": a row a sequence, with lists of the
            steps' values. "wide": a row a sequence, with a column for each step: `inputs` lists the columns of all
            steps, or for several features a list of such lists. "auto" knows all but "wide".
        horizon: Targets lie this many steps ahead: at step t, the target's value of step t + horizon. Without `target`,
            the inputs themselves are the targets. Sequences become so much shorter.
        dtypes: What fields are stored as, by field or column, or one for all: "float32" (unless said otherwise),
            "float64", "float16", "bfloat16", "int8" to "int64". "category" makes codes of a column of numbers. For the
            sequence and order columns: "text", "int64", "float64", "timestamp".
        missing: What becomes of missing values, NaN among them: "error", "drop" (the step; for values per sequence, the
            sequence), "forward" (the value before), "mean" (of the training part), or a number; for some fields or
            columns, `{"x": "forward", "price": 0.0}`. `["forward", 0.0]` says what stands where none comes before,
            `{"shop": {"value": "unknown"}}` what category.
        duplicates: What becomes of several rows of a sequence with the same order: "error", "first", "last" or "keep",
            by file and row.
        split: Parts: `{"train": 0.8, "valid": 0.2}` of the sequences, lists of their names, or `ByTime(...)`.
        transforms: What is fitted to the part "train" (or the first; without a split, to all) and applied to batches:
            `{"x": "standard"}`, "minmax", "log1p", "per_sequence", `{"kind": "pca", "components": 8}`, or one's own.
        memory_limit: Bytes that the ingest may add to what the process holds, about: a number, or text such as "1GiB".
        shard_bytes: The size of the store's files, in bytes or as such text.
        encoding: Of CSV and text files.
        missing_text: What stands for a missing value in CSV files.
        decimal: The decimal point of CSV files; "," where that is meant.
        append: Add to the store in `out`, with its vocabularies, splits, transforms and means as they are.
        resume: Go on where the same ingest of the same files was interrupted.
        progress: None: a line on the terminal, and a report on standard error; False: neither; True: both wherever
            standard error goes; a function: it is called with every `Progress`, and the report is written.

    Returns:
        The store, open.

    Raises:
        LowtideError: Something cannot be read, or be what was asked for; it says where, why and what to do.
    """
    request = read_request(
        out,
        sequence=sequence,
        order=order,
        inputs=inputs,
        target=target,
        label=label,
        static=static,
        layout=layout,
        text=text,
        unit=unit,
        separator=separator,
        horizon=horizon,
        dtypes=dtypes,
        missing=missing,
        duplicates=duplicates,
        split=split,
        transforms=transforms,
        memory_limit=memory_limit,
        shard_bytes=shard_bytes,
        encoding=encoding,
        missing_text=missing_text,
        decimal=decimal,
        append=append,
        resume=resume,
    )
    from lowtide.data.ingestion.run import Ingest  # noqa: PLC0415 - brings DuckDB, which opening a store does not need

    store, report = Ingest(request, _watcher(progress)).run(sources)
    if progress is not False:
        sys.stderr.writelines(f"lowtide.ingest: {line}\n" for line in report.lines())
    return store


def _watcher(progress: bool | Watcher | None) -> Watcher | None:
    if callable(progress):
        return progress
    shown = sys.stderr.isatty() if progress is None else progress
    return Line() if shown else None
