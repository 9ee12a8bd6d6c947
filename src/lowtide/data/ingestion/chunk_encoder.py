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

    def finish(self) -> None:
        """See, behind the last chunk, that what was taken for text was text.

        Raises:
            LowtideError: It was numbers: the rows that types are guessed from had none.
        """
        for plan in self._plans:
            if (
                self._source.types_guessed
                and plan.kind == "category"
                and self._categories[plan.field.name].numbers_alone
            ):
                raise LowtideError(
                    what=f"the column {plan.columns[0]!r} holds numbers, and no value in its first rows",
                    why="it was taken for text, and each number would become a category, a code without its size",
                    fix=f'say what it is: dtypes={{"{plan.columns[0]}": "float32"}}, or "category"',
                )

    def encode(self, raw: RawChunk) -> Chunk:
        """Encode one chunk.

        Raises:
            LowtideError: A value is missing, does not fit, or is of another kind than the rest of its column.
        """
        arrays: dict[str, Array] = {}
        missing: dict[str, Mask] = {}
        dropped: dict[str, Mask] = {}
        for plan in self._plans:
            name = plan.field.name
            per_step = plan.field.per == "step"
            with self._errors_placed(plan, raw):
                values, absent = self._numbers(plan, (raw.steps if per_step else raw.values)[name])
                offsets = raw.offsets if per_step else np.arange(len(raw.names) + 1)
                arrays[name], dropped[name] = self._fillers[name].fill(
                    values, absent, offsets, continues=raw.continues and per_step
                )
            if absent is not None:
                missing[name] = absent
        sequences_left_out = self._sequences_left_out(raw, dropped)
        steps_left_out = self._steps_left_out(raw, dropped, sequences_left_out)
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
        return drop_sequences(drop_steps(chunk, steps_left_out), sequences_left_out)

    def _numbers(self, plan: FieldPlan, raw: Raw) -> tuple[Array, Mask | None]:
        if plan.kind == "category":
            codes, absent = self._categories[plan.field.name].encode(raw)
            return cast(codes, plan.field)[0], absent
        return cast(raw, plan.field)

    def _sequences_left_out(self, raw: RawChunk, dropped: Mapping[str, Mask]) -> Mask:
        """The sequences that lack a value; each is counted once, in the chunk in which it begins."""
        together = np.zeros(len(raw.names), dtype=np.bool_)
        counted = together.copy()
        counted[:1] = raw.continues
        for name in raw.values:
            self._count(f"sequences without {name!r}", dropped[name] & ~together & ~counted)
            together |= dropped[name]
        return together

    def _steps_left_out(self, raw: RawChunk, dropped: Mapping[str, Mask], sequences: Mask) -> Mask:
        """The steps that lack a value, of sequences that stay."""
        gone = np.repeat(sequences, np.diff(raw.offsets))
        together = np.zeros(len(gone), dtype=np.bool_)
        for name in raw.steps:
            self._count(f"steps without {name!r}", dropped[name] & ~together & ~gone)
            together |= dropped[name] & ~gone
        return together

    def _count(self, what: str, dropped: Mask) -> None:
        if dropped.any():
            self._tally.dropped[what] += int(np.count_nonzero(dropped))

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
