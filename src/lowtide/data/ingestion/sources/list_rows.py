"""Tables with one row a sequence: columns of lists hold the values of its steps, other columns values per sequence.

Rows are read some at a time, as many as have about a bounded number of bytes together. A column of lists of lists holds
several features a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.fields import Array
from lowtide.data.ingestion.field_plan import FieldPlan, plan_fields, required
from lowtide.data.ingestion.progress import Meter
from lowtide.data.ingestion.sources.chunk import Raw, RawChunk, offsets_of
from lowtide.data.ingestion.sources.disk_space import check_disk
from lowtide.data.ingestion.sources.row_source import RowSource
from lowtide.data.ingestion.sources.source import Place, Setting
from lowtide.data.ingestion.sources.values import row_type
from lowtide.errors import LowtideError

_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 14
_NESTED = 2
_PEEKED_ROWS = 64


class ListRows(RowSource):
    """Rows as sequences, their steps in lists."""

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields that were asked for; first rows are looked at where they have several features a step."""
        columns = dict(self._table.columns)
        for name in self._request.column_names:
            told = required(name, columns, "ingest")
            if told.depth == _NESTED and told.width is None:
                columns[name] = replace(told, width=self._peek_width(name))
        return plan_fields(self._request, columns, "list")

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The rows in order."""
        table = self._table
        wanted = dict(self._names.wanted)
        for plan in fields:
            for name in plan.columns:
                wanted.setdefault(name, row_type(plan, table.columns[name]))
        setting.meter.expect(source_bytes=table.bytes)
        check_disk(setting.scratch, stored=(table.rows or 0) * table.row_bytes, sorted_bytes=0)
        rows = max(1, min(_MOST_ROWS, _BATCH_BYTES // max(1, table.row_bytes)))
        setting.meter.begin("writing")
        done = 0
        for batch in table.batches(wanted, rows, setting.meter):
            yield from self._chunk(batch, fields, done, setting)
            done += batch.num_rows
            if table.rows:
                setting.meter.reached(done / table.rows)

    def where(self, place: Place) -> str:
        """File and row of a value."""
        step = "" if place.step is None else f", step {place.step}"
        return f"{self._table.place_of(place.sequence)}, column {place.column!r}{step}"

    def _chunk(
        self, batch: pa.RecordBatch, fields: Sequence[FieldPlan], first: int, setting: Setting
    ) -> Iterator[RawChunk]:
        if not batch.num_rows:
            return
        lengths: NDArray[np.int64] | None = None
        steps: dict[str, Raw] = {}
        values: dict[str, Raw] = {}
        told = ""
        for plan in fields:
            if plan.field.per == "sequence":
                values[plan.field.name] = [batch.column(name) for name in plan.columns]
                continue
            for name in plan.columns:
                found = self._lengths(batch.column(name), name, first)
                if lengths is not None and not np.array_equal(found, lengths):
                    row = int(np.flatnonzero(found != lengths)[0])
                    raise LowtideError(
                        what=f"{self._table.place_of(first + row)}: {name!r} has {found[row]} steps, {told!r} has "
                        f"{lengths[row]}",
                        why="all columns of lists go through time together",
                        fix="correct the row; what has one value a sequence is a label= or static=",
                    )
                lengths, told = found, name
            steps[plan.field.name] = self._flat(batch, plan, first)
        assert lengths is not None
        names = self._names.of(batch, first, setting.before, self._table.place_of)
        yield RawChunk(names, offsets_of(lengths), steps, values)

    def _lengths(self, lists: pa.Array, column: str, first: int) -> NDArray[np.int64]:
        if lists.null_count:
            row = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
            raise LowtideError(
                what=f"{self._table.place_of(first + row)}: the list in column {column!r} is missing",
                why="a sequence without its steps is none",
                fix="fill in the list, or leave such rows out of the sources",
            )
        if pa.types.is_fixed_size_list(lists.type):
            return np.full(len(lists), lists.type.list_size, dtype=np.int64)
        lengths: NDArray[np.int64] = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        return lengths

    def _flat(self, batch: pa.RecordBatch, plan: FieldPlan, first: int) -> Raw:
        """The values of all steps, one after the other."""
        flat = [batch.column(name).flatten() for name in plan.columns]
        if len(flat) > 1 or not _is_list(flat[0].type):
            return flat
        return self._features(batch, plan, flat[0], first)

    def _features(self, batch: pa.RecordBatch, plan: FieldPlan, inner: pa.Array, first: int) -> Array:
        """(steps, features) from lists of features."""
        width = plan.field.width
        fixed = pa.types.is_fixed_size_list(inner.type)
        widths = np.full(len(inner), inner.type.list_size) if fixed else pc.fill_null(pc.list_value_length(inner), -1)
        wrong = np.flatnonzero(np.asarray(widths) != width)
        if inner.null_count or len(wrong):
            step = int(wrong[0]) if len(wrong) else int(np.argmax(inner.is_null().to_numpy(zero_copy_only=False)))
            offsets = offsets_of(self._lengths(batch.column(plan.columns[0]), plan.columns[0], first))
            row = int(np.searchsorted(offsets, step, side="right")) - 1
            found = max(0, int(np.asarray(widths)[step]))
            raise LowtideError(
                what=f"{self._table.place_of(first + row)}, column {plan.columns[0]!r}, step {step - offsets[row]}: "
                f"{found} features, and {width} in the first step of all",
                why="every step has the same features",
                fix="correct the row, or fill in what is missing in the source",
            )
        scalars = inner.flatten()
        if scalars.null_count and pa.types.is_integer(scalars.type):
            scalars = pc.cast(scalars, pa.float64())
        numbers: Array = scalars.to_numpy(zero_copy_only=False)
        return numbers.reshape(-1, width)

    def _peek_width(self, name: str) -> int | None:
        """The features of the first step that there is."""
        for batch in self._table.batches({name: ""}, _PEEKED_ROWS, Meter(None)):
            steps = batch.column(name).flatten().drop_null()
            if len(steps):
                return len(steps[0].as_py())
        return None


def _is_list(kind: Any) -> bool:  # noqa: ANN401 - an Arrow type
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
