"""Tables with one row a step: sorted by DuckDB, out of core where memory does not suffice, and cut at the sequence key.

Rows are sorted by sequence and order. Rows that have both in common are an error, unless it is said what becomes of
them: then ties go by file and row. Without an order the rows of a sequence stay in the order of files and rows. Without
a sequence key everything is one series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lowtide.data.disk.row_buffer import Name
from lowtide.data.ingestion.field_plan import FieldPlan, plan_fields
from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sources.chunk import RawChunk
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.data.ingestion.sources.cutting import ORDER, SEQUENCE, Cutter, Cutting
from lowtide.data.ingestion.sources.disk_space import check_disk
from lowtide.data.ingestion.sources.duck import Duck, UnconvertedError, name, select
from lowtide.data.ingestion.sources.keys import Key, order_key, sequence_key
from lowtide.data.ingestion.sources.source import Place, Setting, Source
from lowtide.data.ingestion.sources.table import ROW, Table, placed
from lowtide.data.ingestion.sources.values import expression, reading_type, unfit
from lowtide.errors import LowtideError

_BATCH_BYTES = 2 << 20
_LEAST_ROWS = 1 << 10
_MOST_ROWS = 1 << 17
_KEY_BYTES = 24
"""Of a row, for its keys while it is sorted."""
_TIE = "r"
_PLACE = "lowtide_place"


class LongTable(Source):
    """Steps in any order, as sequences."""

    names_differ = True

    def __init__(self, duck: Duck, table: Table, request: Request) -> None:
        """Look at the columns.

        Raises:
            LowtideError: The sequence or order column is not there, or cannot be sorted by.
        """
        self._duck = duck
        self._table = table
        self._request = request
        self._duplicates = request.duplicates
        self._keys: dict[str, Key] = {}
        if request.sequence is not None:
            self._keys[SEQUENCE] = sequence_key(request, table)
        if request.order is not None:
            self._keys[ORDER] = order_key(request, table, duck)
        self._wanted: dict[str, str] = {key.column: key.reading_type for key in self._keys.values()}
        # A single series is called 0.
        self.id_type = self._keys[SEQUENCE].id_type if SEQUENCE in self._keys else "int64"
        self.has_order = ORDER in self._keys
        self.types_guessed = table.types_guessed

    @property
    def identity(self) -> Mapping[str, object] | None:
        """What the content follows from."""
        return self._table.identity

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields that were asked for."""
        return plan_fields(self._request, self._table.columns, "long")

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The sorted rows, batch by batch."""
        for plan in fields:
            for column in plan.columns:
                self._wanted.setdefault(column, reading_type(plan, self._table.columns[column]))
        row_bytes = sum(plan.field.step_bytes for plan in fields)
        self._make_ready(setting, row_bytes)
        cutting = Cutting(
            fields,
            unkeyed_name=setting.before,
            keyed=SEQUENCE in self._keys,
            ordered=ORDER in self._keys,
            refuse_duplicates=self._duplicates == "error",
            keep_duplicates=self._duplicates == "keep",
        )
        cutter = Cutter(cutting, self)
        rows = max(_LEAST_ROWS, min(_MOST_ROWS, _BATCH_BYTES // (_KEY_BYTES + row_bytes)))
        in_order = self._numbered or not self._keys
        try:
            for batch in self._duck.stream(self._query(fields), rows, in_order=in_order, meter=setting.meter):
                yield from cutter.cut(batch)
        except UnconvertedError as error:
            raise placed(error, self._table, self._wanted, self._unfit(fields)) from error
        yield from cutter.finish()
        if cutter.duplicates:
            column = self._keys[ORDER].column
            setting.tally.dropped[f"rows that repeat the {column!r} of another of their sequence"] += cutter.duplicates

    def where(self, place: Place) -> str:
        """File and row of a value, as far as its keys tell."""
        told = f"column {place.column!r}"
        if SEQUENCE in self._keys:
            told = f"{told} of the sequence {place.name!r}"
        found = None
        if place.order is not None or place.step is None:
            found = self._row(place.name, place.order)
        step = "" if place.step is None else f", step {place.step}"
        return f"{found}, {told}" if found is not None else f"{told}{step}"

    def no_key(self, alias: str) -> LowtideError:
        """A row without its sequence or order."""
        key = self._keys[alias]
        place = self._table.where(self._wanted, f"{key.expression} IS NULL")
        return LowtideError(
            what=f"{place or 'a row'}: column {key.column!r} is missing",
            why="rows are put in order by it",
            fix="fill it in, or leave such rows out of the sources",
        )

    def twice(self, sequence: Name, order: pa.Scalar) -> LowtideError:
        """Two rows of one sequence with the same order."""
        place = self._row(sequence, order)
        of = f"the sequence {sequence!r} has " if SEQUENCE in self._keys else ""
        return LowtideError(
            what=f"{of}several rows with {self._keys[ORDER].column} = {order.as_py()!s}; the first is {place}",
            why="which of them comes first, or counts, cannot be told",
            fix='remove the others, or write duplicates="first", "last" or "keep" (all, by file and row)',
        )

    def changes(self, sequence: Name, column: str, values: tuple[object, object]) -> LowtideError:
        """A value per sequence that is not the same in all of its rows."""
        return LowtideError(
            what=f"the sequence {sequence!r} has both {values[0]!r} and {values[1]!r} in the column {column!r}",
            why="a label, or a static field, has one value a sequence",
            fix="correct the column, or take it as target= or inputs=, which have a value at every step",
        )

    @property
    def _numbered(self) -> bool:
        """Whether rows have to be numbered, to put those in order that keys do not."""
        return bool(self._keys) and (ORDER not in self._keys or self._duplicates != "error")

    def _make_ready(self, setting: Setting, row_bytes: int) -> None:
        self._table.prepare(setting.scratch)
        setting.meter.expect(rows=self._table.rows, source_bytes=self._table.bytes)
        rows = self._table.rows_about
        in_sort = rows * (row_bytes + _KEY_BYTES) if self._keys else 0
        spills = in_sort > self._duck.memory // 2
        check_disk(setting.scratch, stored=rows * row_bytes, sorted_bytes=in_sort if spills else 0)
        self._duck.spill_to(setting.scratch / "sorting")

    def _unfit(self, fields: Sequence[FieldPlan]) -> Iterator[tuple[str, str]]:
        """Columns that are read as text and are none, and how a value that they cannot hold is known."""
        for key in self._keys.values():
            yield key.column, key.unfit
        for plan in fields:
            for column in plan.columns:
                yield column, unfit(plan, column, self._read_as(column))

    def _query(self, fields: Sequence[FieldPlan]) -> str:
        columns = {alias: key.expression for alias, key in self._keys.items()}
        order = list(columns)
        if self._numbered:
            columns[_TIE] = name(ROW)
            order.append(f"{_TIE} DESC" if self._duplicates == "last" and ORDER in self._keys else _TIE)
        for number, plan in enumerate(fields):
            for feature, column in enumerate(plan.columns):
                columns[f"f{number}_{feature}"] = expression(plan, column, self._read_as(column))
        # Cast below the sort: what is sorted are values as they are stored, which are often smaller.
        below = select(columns, self._table.relation(self._wanted, numbered=self._numbered))
        return select({alias: name(alias) for alias in columns if alias != _TIE}, f"({below})", order=order)

    def _read_as(self, column: str) -> ColumnType:
        """The type in which the relation has a column."""
        return self._table.read_as(column, self._wanted[column])

    def _row(self, sequence: Name, order: pa.Scalar | None) -> str | None:
        """File and row of the first row of a sequence, of this order if there is one."""
        values = {}
        if SEQUENCE in self._keys:
            values[SEQUENCE] = pa.array([sequence], pa.string() if self.id_type == "string" else pa.int64())
        if order is not None:
            values[ORDER] = pa.array([order.as_py()], order.type)
        conditions = [f"{self._keys[alias].expression} = ({select({alias: alias}, _PLACE)})" for alias in values]
        tables = {_PLACE: pa.table(values)} if values else {}
        return self._table.where(self._wanted, " AND ".join(conditions) or "true", **tables)
