"""From whatever a user hands over to the source that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowtide.data.ingestion.request import Request, TextRequest
from lowtide.data.ingestion.sources.arrays import array_files, arrays_source, is_arrays
from lowtide.data.ingestion.sources.beside import folder_beside
from lowtide.data.ingestion.sources.csv_table import CsvFormat, CsvTable
from lowtide.data.ingestion.sources.duck import Duck
from lowtide.data.ingestion.sources.find_files import Found, find_files
from lowtide.data.ingestion.sources.frames import FrameTable, arrow_files, is_frame
from lowtide.data.ingestion.sources.generator import Generator
from lowtide.data.ingestion.sources.json_table import JsonTable
from lowtide.data.ingestion.sources.list_rows import ListRows
from lowtide.data.ingestion.sources.long_table import LongTable
from lowtide.data.ingestion.sources.parquet_table import ParquetTable
from lowtide.data.ingestion.sources.source import Source
from lowtide.data.ingestion.sources.spill import SpilledTable, is_lazy, spill
from lowtide.data.ingestion.sources.table import FILE, Table
from lowtide.data.ingestion.sources.text_files import TextFiles, TextRows
from lowtide.data.ingestion.sources.wide_table import WideTable
from lowtide.data.ingestion.tally import Tally
from lowtide.data.text.tokenizing import Tokenizer
from lowtide.errors import LowtideError

_OVERHEAD = 176 << 20
"""Of a limit on memory, what is not DuckDB's: buffers of the writer, chunks, what DuckDB takes beside its own limit."""


@contextmanager
def open_source(sources: Any, request: Request, tally: Tally, known: Tokenizer | None) -> Iterator[Source]:  # noqa: ANN401 - see `ingest`
    """Open what a user handed over.

    Args:
        sources: Files, tables, arrays, or an iterable of sequences.
        request: What was asked for.
        tally: Counts files that are left aside.
        known: The tokenizer of a store that is appended to.

    Raises:
        LowtideError: It cannot be read as was asked.
    """
    if is_arrays(sources):
        yield arrays_source(sources, request)
    elif _are_paths(sources) or is_frame(sources) or is_lazy(sources):
        yield from _files_or_frame(sources, request, tally, known)
    elif callable(sources) or isinstance(sources, Iterable):
        yield Generator(sources, request)
    else:
        raise LowtideError(
            what=f"the sources are a {type(sources).__name__}",
            why="sequences come from files, tables (pandas, Polars, Arrow), NumPy arrays, or one by one",
            fix="hand over one of these",
        )


def _files_or_frame(sources: Any, request: Request, tally: Tally, known: Tokenizer | None) -> Iterator[Source]:  # noqa: ANN401 - see `ingest`
    with ExitStack() as stack:
        duck = stack.enter_context(Duck(request.memory_limit - _OVERHEAD))
        if is_frame(sources):
            yield _of_table(duck, FrameTable(duck, sources), request, known)
            return
        if is_lazy(sources):
            rows = spill(sources, stack.enter_context(folder_beside(request.out)) / "rows.parquet")
            yield _of_table(duck, SpilledTable(duck, [rows], request.column_names), request, known)
            return
        found = _found(sources, request, tally)
        if found.format == "text":
            text = request.text or TextRequest("characters")
            yield TextFiles(found.paths, replace(request, text=text), known)
        elif found.format == "numpy":
            yield array_files(found.paths, request)
        else:
            table = _table(duck, found, request)
            if request.text is not None:  # which may be read for a vocabulary before the store is begun
                table.prepare(stack.enter_context(folder_beside(request.out)))
            yield _of_table(duck, table, request, known)


def _found(sources: str | Path | Sequence[str | Path], request: Request, tally: Tally) -> Found:
    text = request.text is not None and not request.wanted
    found = find_files(sources, as_format="text" if text else None, tally=tally, without=request.out)
    # Tables are often called .txt too; columns are asked for of tables alone.
    return replace(found, format="csv") if found.format == "text" and request.wanted and not text else found


def _table(duck: Duck, found: Found, request: Request) -> Table:
    wanted = request.column_names
    if found.format == "parquet":
        return ParquetTable(duck, found.paths, wanted - {FILE})
    if found.format == "csv":
        form = CsvFormat(request.encoding, request.missing_text, request.decimal)
        return CsvTable(duck, found.paths, wanted, form)
    if found.format == "json":
        return JsonTable(duck, found.paths, request.encoding)
    return FrameTable(duck, arrow_files(found.paths, wanted), found.paths)


def _of_table(duck: Duck, table: Table, request: Request, known: Tokenizer | None) -> Source:
    if not any(wanted.role == "inputs" for wanted in request.wanted):
        raise LowtideError(
            what="a table was given, and inputs= names none of its columns",
            why=f"its columns are {', '.join(map(repr, table.columns))}",
            fix="name those that a model shall see at every step, as in inputs=['a', 'b']",
        )
    if request.text is not None:
        return TextRows(table, request, known)
    layout = _layout(table, request)
    if layout == "list":
        return ListRows(table, request)
    if layout == "wide":
        return WideTable(duck, table, request)
    return LongTable(duck, table, request)


def _layout(table: Table, request: Request) -> str:
    """How rows lie: as asked, or as the inputs' types and the sequence column tell."""
    if request.layout != "auto":
        if request.layout == "series" and request.sequence is not None:
            raise LowtideError(
                what=f'layout="series" and sequence={request.sequence!r}',
                why="one single series has no sequence column",
                fix="leave one of the two out",
            )
        return request.layout
    steps = [name for wanted in request.wanted if wanted.per == "step" for name in wanted.features]
    types: Mapping[str, Any] = table.columns
    lists = any(name in types and types[name].is_list for name in steps if isinstance(name, str))
    return "list" if lists else "long"


def _are_paths(sources: object) -> bool:
    if isinstance(sources, str | Path):
        return True
    return isinstance(sources, list | tuple) and bool(sources) and all(isinstance(each, str | Path) for each in sources)
