"""Wide tables: one row a sequence, one column a step of each feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lowtide.data.ingestion.field_plan import FieldPlan, plan_fields
from lowtide.data.ingestion.request import Feature, Request
from lowtide.data.ingestion.sources.chunk import Raw, RawChunk
from lowtide.data.ingestion.sources.disk_space import check_disk
from lowtide.data.ingestion.sources.duck import Duck, UnconvertedError, name, select
from lowtide.data.ingestion.sources.row_source import RowSource
from lowtide.data.ingestion.sources.source import Place, Setting
from lowtide.data.ingestion.sources.table import Table, placed
from lowtide.data.ingestion.sources.values import expression, reading_type, unfit
from lowtide.errors import LowtideError

_VALUES = 1 << 20
"""Values in a chunk, about."""
_MOST_ROWS = 1 << 14


class WideTable(RowSource):
    """Rows as sequences, their steps side by side."""

    def __init__(self, duck: Duck, table: Table, request: Request) -> None:
        """Look at the columns.

        Raises:
            LowtideError: The sequence column is not there.
        """
        super().__init__(table, request)
        self._duck = duck

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields that were asked for."""
        plans = plan_fields(self._request, self._table.columns, "wide")
        steps = {plan.field.name: _steps(plan) for plan in plans if plan.field.per == "step"}
        if len(set(steps.values())) > 1:
            raise LowtideError(
                what=f"the fields have different numbers of columns, one a step: {steps}",
                why="all fields with values per step go through time together",
                fix="name as many columns for each; what has one value a sequence is a label= or static=",
            )
        return plans

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The rows in order."""
        wanted = dict(self._names.wanted)
        selected = {column: name(column) for column in wanted}
        for number, plan in enumerate(fields):
            for place, column in enumerate(plan.columns):
                wanted.setdefault(column, reading_type(plan, self._table.columns[column]))
                told = self._table.read_as(column, wanted[column])
                selected[f"f{number}_{place}"] = expression(plan, column, told)
        self._table.prepare(setting.scratch)
        steps = next(_steps(plan) for plan in fields if plan.field.per == "step")
        values = sum(len(plan.columns) for plan in fields)
        stored = sum(plan.field.step_bytes * (steps if plan.field.per == "step" else 1) for plan in fields)
        check_disk(setting.scratch, stored=self._table.rows_about * stored, sorted_bytes=0)
        setting.meter.expect(
            rows=None if self._table.rows is None else self._table.rows * steps, source_bytes=self._table.bytes
        )
        rows = max(1, min(_MOST_ROWS, _VALUES // values))
        query = select(selected, self._table.relation(wanted))
        done = 0
        try:
            for batch in self._duck.stream(query, rows, in_order=True, meter=setting.meter):
                yield self._chunk(batch, fields, steps, done, setting.before)
                done += batch.num_rows
        except UnconvertedError as error:
            columns = [(plan, column) for plan in fields for column in plan.columns]
            found = [
                (column, unfit(plan, column, self._table.read_as(column, wanted[column]))) for plan, column in columns
            ]
            raise placed(error, self._table, wanted, found) from error

    def where(self, place: Place) -> str:
        """File and row of a value."""
        column = place.column
        if place.step is not None:
            column = self._column_of(column, place.step)
        return f"{self._table.place_of(place.sequence)}, column {column!r}"

    def _column_of(self, first: str, step: int) -> str:
        """The column of a step of the feature whose first column this is."""
        for wanted in self._request.wanted:
            if first in wanted.features:
                features: tuple[Feature, ...] = (tuple(str(feature) for feature in wanted.features),)
            else:
                features = wanted.features
            for feature in features:
                if not isinstance(feature, str) and feature[0] == first:
                    return feature[step]
        return first

    def _chunk(
        self, batch: pa.RecordBatch, fields: Sequence[FieldPlan], steps: int, first: int, before: int
    ) -> RawChunk:
        rows = batch.num_rows
        turned = pa.array(np.arange(rows * steps).reshape(steps, rows).T.reshape(-1))
        arrays: dict[str, Raw] = {}
        values: dict[str, Raw] = {}
        for number, plan in enumerate(fields):
            columns = [batch.column(f"f{number}_{place}") for place in range(len(plan.columns))]
            if plan.field.per == "sequence":
                values[plan.field.name] = columns
                continue
            arrays[plan.field.name] = [
                pa.concat_arrays(columns[start : start + steps]).take(turned) for start in range(0, len(columns), steps)
            ]
        names = self._names.of(batch, first, before, self._table.place_of)
        return RawChunk(names, np.arange(rows + 1, dtype=np.int64) * steps, arrays, values)


def _steps(plan: FieldPlan) -> int:
    return len(plan.columns) // max(1, plan.field.width)
