"""Text files, and columns of text, as sequences of codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lowtide.data.fields import Field
from lowtide.data.ingestion.field_plan import FieldPlan, plan_fields, required, shifted_inputs
from lowtide.data.ingestion.missing import Policy
from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.request import Request, TextRequest
from lowtide.data.ingestion.sources.chunk import Raw, RawChunk
from lowtide.data.ingestion.sources.disk_space import check_disk
from lowtide.data.ingestion.sources.row_names import RowNames
from lowtide.data.ingestion.sources.source import Place, Setting, Source
from lowtide.data.ingestion.sources.table import Table, identity_of
from lowtide.data.ingestion.sources.values import row_type
from lowtide.data.store import TOKENIZER
from lowtide.data.text.batch import TextBatch, TextCounts
from lowtide.data.text.reader import TextReader, name_files
from lowtide.data.text.tokenizing import Characters, Tokenizer, make_tokenizer
from lowtide.data.text.training_texts import training_texts
from lowtide.errors import LowtideError

_ROWS = 1 << 12
_TEXT = "VARCHAR"
_UNKNOWN = "characters or words that the vocabulary does not have, as the unknown"
_GUESSED_BYTES = 4
"""Of a byte of text, in codes of the widest type."""


class TextSource(Source):
    """What texts have in common: a tokenizer, and one field of codes."""

    def __init__(self, request: Request, known: Tokenizer | None) -> None:
        """Use the tokenizer of a store that is appended to; None: make one."""
        assert request.text is not None
        self._request = request
        self._text = request.text
        self._known = known
        self._made: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, made when it is first wanted: that may take a pass over all texts."""
        if self._made is None:
            self._made = self._make() if self._known is None else self._known
        return self._made

    @property
    def vocabularies(self) -> Mapping[str, list[str]]:
        """What the codes stand for."""
        return {"x": self.tokenizer.vocabulary}

    @property
    def documents(self) -> Mapping[str, str]:
        """The tokenizer."""
        return {TOKENIZER: self.tokenizer.to_text()}

    def _make(self) -> Tokenizer:
        """Learn from the training part alone, so that nothing is learnt from what is tested on."""
        request = self._request
        texts = self._texts
        if self._text.learnt and request.split is not None:
            if isinstance(self._text.unit, int) and self._text.tokenizer != "characters":
                raise LowtideError(
                    what=f"text={self._text.tokenizer!r} with spans of {self._text.unit} codes and a split",
                    why="a tokenizer is trained on the training part, and which spans belong to it is known only when "
                    "a tokenizer has cut the text into them",
                    fix='take unit="document" and split=ByTime(...), or hand over a tokenizer that is trained already',
                )
            everything = make_tokenizer("characters", self._texts, total_bytes=self._bytes)
            assert isinstance(everything, Characters)
            texts = partial(training_texts, self._sequences, everything, request.split, horizon=request.horizon)
        return make_tokenizer(self._text.tokenizer, texts, total_bytes=self._bytes)

    @property
    @abstractmethod
    def _bytes(self) -> int:
        """How much text there is, about."""

    @abstractmethod
    def _texts(self) -> Iterator[list[str]]:
        """A pass over all texts."""

    @abstractmethod
    def _sequences(self, tokenizer: Tokenizer) -> Iterator[TextBatch]:
        """A pass over the sequences, as codes of a tokenizer."""

    def _known_by(self, found: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """An identity, and how text becomes codes, where that is plain."""
        told = self._text.tokenizer
        if found is None or not isinstance(told, str | Mapping):
            return None
        file = Path(told) if isinstance(told, str) else None
        return {
            **found,
            **(identity_of([file]) if file is not None and file.is_file() else {}),
            "text": repr(self._text),
        }

    def _codes(self, column: str) -> FieldPlan:
        asked = self._request.dtypes.get("x", self._request.dtypes.get(column, ""))
        dtype: Any = asked if asked.startswith("int") else self.tokenizer.dtype
        return FieldPlan(Field("x", "inputs", "step", dtype, 0, (column,), "x"), "codes", (column,), (Policy(),))


class TextFiles(TextSource):
    """Lines, documents or spans of text files."""

    id_type = "string"

    def __init__(self, paths: Sequence[Path], request: Request, known: Tokenizer | None = None) -> None:
        """Read nothing yet.

        Raises:
            LowtideError: Something was asked for that text files do not have.
        """
        super().__init__(request, known)
        if request.wanted or request.sequence is not None or request.order is not None:
            raise LowtideError(
                what="columns were asked for of text files",
                why="they hold text alone",
                fix="leave sequence=, order=, inputs= and target= out; horizon=1 makes the next code the target",
            )
        self._paths = paths
        self._reader = TextReader(
            name_files(paths),
            self._text.unit,  # type: ignore[arg-type]  # checked there
            separator=self._text.separator,
            horizon=request.horizon,
            encoding=request.encoding,
            errors=self._text.errors,  # type: ignore[arg-type]  # the same
            empty=self._text.empty,  # type: ignore[arg-type]  # the same
        )

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times; and how text becomes codes, where that is plain."""
        return self._known_by(identity_of(self._paths))

    def plan(self) -> tuple[FieldPlan, ...]:
        """The codes, and where there is a horizon the codes that follow them."""
        codes = self._codes("text")
        return (codes, *shifted_inputs(self._request, [codes]))

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """One pass over the files."""
        total = self._reader.bytes
        setting.meter.expect(source_bytes=total)
        check_disk(setting.scratch, stored=total * fields[0].field.step_bytes, sorted_bytes=0)
        setting.meter.begin("writing")
        counts = TextCounts()
        for batch in self._reader.sequences(self.tokenizer, counts):
            setting.meter.reached(counts.bytes / max(1, total))
            yield RawChunk(
                batch.ids,
                batch.offsets,
                {"x": batch.codes},
                continues=batch.continues,
                goes_on=batch.goes_on,
            )
        dropped, filled = setting.tally.dropped, setting.tally.filled
        blank = counts.blank if self._text.empty == "drop" else 0
        for tally, count, what in [
            (dropped, blank, "texts of nothing but white space"),
            (dropped, counts.short, f"documents of no more than {self._request.horizon} codes"),
            (filled, counts.replaced, f"places that are not {self._request.encoding}, by the replacement character"),
            (filled, counts.unknown, _UNKNOWN),
        ]:
            if count:
                tally[what] += count

    def where(self, place: Place) -> str:
        """File and line, document or span."""
        return str(place.name)

    @property
    def _bytes(self) -> int:
        return self._reader.bytes

    def _texts(self) -> Iterator[list[str]]:
        return self._reader.texts()

    def _sequences(self, tokenizer: Tokenizer) -> Iterator[TextBatch]:
        return self._reader.sequences(tokenizer, TextCounts())


class TextRows(TextSource):
    """The texts of a column of a table, one a row."""

    def __init__(self, table: Table, request: Request, known: Tokenizer | None = None) -> None:
        """Look at the columns.

        Raises:
            LowtideError: It is not one column of text that the codes are of.
        """
        super().__init__(request, known)
        self._table = table
        inputs = [wanted for wanted in request.wanted if wanted.role == "inputs"]
        columns = [name for wanted in inputs for name in wanted.features]
        per_step = [wanted for wanted in request.wanted if wanted.per == "step" and wanted.role == "targets"]
        if len(columns) != 1 or not isinstance(columns[0], str) or per_step or request.order is not None:
            raise _not_one_text(request.text)
        if (self._text.errors, self._text.empty) != ("strict", "drop"):
            raise LowtideError(
                what="errors= or empty= was given in text= for a table",
                why="they say how text files are read; a table has texts, of which those without a code are dropped",
                fix="leave them out, and correct the table where it was made",
            )
        self._column = columns[0]
        told = required(self._column, table.columns, "inputs=")
        if told.kind != "text" or told.depth:
            raise LowtideError(
                what=f"text= was given, and the column {self._column!r} is of type {told.told}",
                why="it says how text becomes codes",
                fix="name a column of text as inputs=, or leave text= out",
            )
        self._names = RowNames(request.sequence, table)
        self.id_type = self._names.id_type
        self.names_differ = self._names.column is None

    @property
    def identity(self) -> Mapping[str, object] | None:
        """What the content follows from."""
        return self._known_by(self._table.identity)

    def plan(self) -> tuple[FieldPlan, ...]:
        """The codes, what follows them where there is a horizon, and values per sequence."""
        others = replace(
            self._request, wanted=tuple(wanted for wanted in self._request.wanted if wanted.role != "inputs")
        )
        codes = self._codes(self._column)
        plans = plan_fields(others, self._table.columns, "long")
        return (codes, *shifted_inputs(self._request, [codes, *plans]), *plans)

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The rows in order."""
        others = [plan for plan in fields if plan.field.per == "sequence"]
        wanted = {**self._names.wanted, self._column: _TEXT}
        for plan in others:
            for name in plan.columns:
                wanted.setdefault(name, row_type(plan, self._table.columns[name]))
        setting.meter.expect(source_bytes=self._table.bytes)
        check_disk(setting.scratch, stored=_GUESSED_BYTES * (self._table.bytes or 0), sorted_bytes=0)
        self._table.prepare(setting.scratch)
        done = 0
        for batch in self._table.batches(wanted, self._rows, setting.meter):
            texts = self._of_batch(batch, done)
            names = self._names.of(batch, done, setting.before, self._table.place_of)
            tokens = self.tokenizer.encode(texts)
            if tokens.unknown:
                setting.tally.filled[_UNKNOWN] += tokens.unknown
            values: dict[str, Raw] = {plan.field.name: [batch.column(name) for name in plan.columns] for plan in others}
            yield RawChunk(names, tokens.offsets, {"x": tokens.codes}, values)
            done += batch.num_rows

    def where(self, place: Place) -> str:
        """File and row."""
        return f"{self._table.place_of(place.sequence)}, column {place.column!r}"

    @property
    def _rows(self) -> int:
        return max(1, min(_ROWS, (4 << 20) // max(1, self._table.row_bytes)))

    def _of_batch(self, batch: pa.RecordBatch, first: int) -> list[str]:
        column = batch.column(self._column)
        if column.null_count:
            row = first + column.is_null().to_pylist().index(True)
            raise LowtideError(
                what=f"{self._table.place_of(row)}: column {self._column!r} is missing",
                why="a sequence without text has no steps",
                fix="fill it in, or leave such rows out of the sources",
            )
        texts: list[str] = column.to_pylist()
        return texts

    @property
    def _bytes(self) -> int:
        return self._table.bytes or 1

    def _texts(self) -> Iterator[list[str]]:
        done = 0
        for batch in self._table.batches({self._column: _TEXT}, self._rows, Meter(None)):
            yield self._of_batch(batch, done)
            done += batch.num_rows

    def _sequences(self, tokenizer: Tokenizer) -> Iterator[TextBatch]:
        done = 0
        for batch in self._table.batches({**self._names.wanted, self._column: _TEXT}, self._rows, Meter(None)):
            tokens = tokenizer.encode(self._of_batch(batch, done))
            yield TextBatch(self._names.of(batch, done, 0, self._table.place_of), tokens.codes, tokens.offsets)
            done += batch.num_rows


def _not_one_text(text: TextRequest | None) -> LowtideError:
    return LowtideError(
        what=f"text={text.tokenizer if text else None!r} needs one column of text as inputs=, a text a row",
        why="its codes are the steps of the sequences",
        fix='write inputs="review", and label= or static= for what has one value a text; order= and target= have none',
    )
