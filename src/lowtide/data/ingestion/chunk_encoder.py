"""From what a source gives to complete numbers of the stored types, or an error that says where the trouble is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from lowtide.data.fields import Array
from lowtide.data.ingestion.categories import Categories
from lowtide.data.ingestion.dtypes import UnfitError, cast
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.filling import Filler, drop_sequences, drop_steps
from lowtide.data.ingestion.sources.chunk import Chunk, Mask, Raw, RawChunk
from lowtide.data.ingestion.sources.source import Place, Source
from lowtide.data.ingestion.tally import Tally
from lowtide.errors import LowtideError


class ChunkEncoder:
    """Encodes chunk after chunk of one pass over a source."""

    def __init__(
        self,
        plans: Sequence[FieldPlan],
        source: Source,
        tally: Tally,
        *,
        known: Mapping[str, Sequence[str]],
        mixed: set[str],
    ) -> None:
        """Begin before the first chunk.

        Args:
            plans: The fields; those that are shifted from others are made later, from these.
            source: Says where values came from.
            tally: Counts what is dropped and filled.
            known: The categories that a store has already, by field.
            mixed: Fields and columns that are categories because somebody said so.
        """
        self._plans = [plan for plan in plans if plan.shifted_from is None]
        self._source = source
        self._tally = tally
        self._categories = {
            plan.field.name: Categories(
                plan.columns[0],
                known.get(plan.field.name, ()),
                mixed=bool(mixed & {plan.field.name, *plan.columns}),
            )
            for plan in self._plans
            if plan.kind == "category"
        }
        self._fillers = {plan.field.name: Filler(plan, self._codes(plan), tally) for plan in self._plans}
        self._sequences = 0
        """Sequences that have ended before this chunk."""
        self._steps = 0
        """Steps, before this chunk, of the one that goes on in it."""

    @property
    def vocabularies(self) -> dict[str, list[str]]:
        """The categories found so far, by field."""
        return {name: categories.vocabulary.entries for name, categories in self._categories.items()}

    def encode(self, raw: RawChunk) -> Chunk:
        """Encode one chunk.

        Raises:
            LowtideError: A value is missing, does not fit, or is of another kind than the rest of its column.
        """
        arrays: dict[str, Array] = {}
        missing: dict[str, Mask] = {}
        steps_left_out = np.zeros(int(raw.offsets[-1]), dtype=np.bool_)
        sequences_left_out = np.zeros(len(raw.names), dtype=np.bool_)
        for plan in self._plans:
            name = plan.field.name
            per_step = plan.field.per == "step"
            with self._errors_placed(plan, raw):
                values, absent = self._numbers(plan, (raw.steps if per_step else raw.values)[name])
                offsets = raw.offsets if per_step else np.arange(len(raw.names) + 1)
                filled, dropped = self._fillers[name].fill(
                    values, absent, offsets, continues=raw.continues and per_step
                )
            arrays[name] = filled
            if absent is not None:
                missing[name] = absent
            if per_step:
                self._count_dropped(dropped, f"steps without {name!r}", steps_left_out)
            else:
                again = raw.continues and len(dropped) > 0 and bool(dropped[0])
                self._count_dropped(dropped, f"sequences without {name!r}", sequences_left_out, counted=int(again))
        self._move_on(raw)
        chunk = Chunk(
            raw.names,
            raw.offsets,
            {name: arrays[name] for name in raw.steps},
            {name: arrays[name] for name in raw.values},
            missing,
            raw.order,
            raw.continues,
            raw.goes_on,
        )
        steps_left_out &= ~np.repeat(sequences_left_out, chunk.lengths)
        return drop_sequences(drop_steps(chunk, steps_left_out), sequences_left_out)

    def _numbers(self, plan: FieldPlan, raw: Raw) -> tuple[Array, Mask | None]:
        if plan.kind == "category":
            codes, absent = self._categories[plan.field.name].encode(raw)
            return cast(codes, plan.field)[0], absent
        return cast(raw, plan.field)

    def _count_dropped(self, dropped: Mask, what: str, together: Mask, counted: int = 0) -> None:
        new = int(np.count_nonzero(dropped & ~together)) - counted
        if new > 0:
            self._tally.dropped[what] += new
        together |= dropped

    def _codes(self, plan: FieldPlan) -> dict[int, int]:
        """The codes of the categories to fill in."""
        if plan.kind != "category":
            return {}
        categories = self._categories[plan.field.name]
        return {
            feature: categories.code(str(policy.value))
            for feature, policy in enumerate(plan.policies)
            if policy.value is not None
        }

    def _move_on(self, raw: RawChunk) -> None:
        ended = len(raw.names) - int(raw.goes_on)
        last = int(raw.offsets[-1] - raw.offsets[-2]) if len(raw.names) else 0
        if raw.goes_on:
            self._steps = last + (self._steps if raw.continues and len(raw.names) == 1 else 0)
        else:
            self._steps = 0
        self._sequences += ended

    @contextmanager
    def _errors_placed(self, plan: FieldPlan, raw: RawChunk) -> Iterator[None]:
        try:
            yield
        except UnfitError as error:
            place = self._place(plan, raw, error)
            raise LowtideError(
                what=f"{self._source.where(place)}: {error.what}", why=error.why, fix=error.fix
            ) from None

    def _place(self, plan: FieldPlan, raw: RawChunk, error: UnfitError) -> Place:
        columns = plan.field.columns or (plan.field.name,)
        column = columns[min(error.feature, len(columns) - 1)]
        if plan.field.per == "sequence":
            return Place(self._sequences + error.row, raw.names[error.row].as_py(), None, None, column)
        at = int(np.searchsorted(raw.offsets, error.row, side="right")) - 1
        step = error.row - int(raw.offsets[at]) + (self._steps if at == 0 and raw.continues else 0)
        order = None if raw.order is None else raw.order[error.row]
        return Place(self._sequences + at, raw.names[at].as_py(), step, order, column)
