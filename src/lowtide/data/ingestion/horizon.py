"""Targets that lie some steps ahead: inputs end early, targets begin late, and so both are of one length.

At step t the target is the value of step t + horizon. A sequence gets shorter by `horizon` steps; one that has no more
than those is left without any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lowtide.data.fields import Array
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.chunk import Chunk, offsets_of


class Horizon:
    """Shifts the targets of chunk after chunk."""

    def __init__(self, steps: int, plans: Sequence[FieldPlan]) -> None:
        """Shift by so many steps.

        Args:
            steps: At least one.
            plans: The fields: those that are targets per step are shifted, and made where they are shifted inputs.
        """
        assert steps > 0
        self._steps = steps
        shifted = [plan for plan in plans if plan.field.role == "targets" and plan.field.per == "step"]
        self._sources = {plan.field.name: plan.shifted_from or plan.field.name for plan in shifted}
        self._early = [plan.field.name for plan in plans if plan.field.per == "step" and plan not in shifted]
        self._held: dict[str, Array] = {}
        """Of a sequence that goes on: the last steps, whose targets are still to come."""
        self._held_order: pa.Array | None = None
        self._seen = 0
        """Steps of that sequence so far."""

    def shift(self, chunk: Chunk) -> Chunk:
        """The chunk with inputs that have their targets, and with these targets."""
        seen = np.zeros(len(chunk.names), dtype=np.int64)
        if chunk.continues:
            seen[:1] = self._seen
        lengths = chunk.lengths
        made = np.maximum(0, seen + lengths - self._steps) - np.maximum(0, seen - self._steps)
        late = self._after_first(lengths, np.minimum(lengths, np.maximum(0, self._steps - seen)))
        held = np.minimum(seen, self._steps) if chunk.continues else np.zeros_like(seen)
        early = self._before_last(held + lengths, made)
        steps = {}
        for name, source in self._sources.items():
            steps[name] = chunk.steps[source][late]
        last = len(chunk.names) - 1
        kept = int(min(self._steps, held[last] + lengths[last])) if chunk.goes_on else 0
        for name in self._early:
            joined = _joined(self._held.get(name) if chunk.continues else None, chunk.steps[name])
            steps[name] = joined[early]
            self._held[name] = joined[len(joined) - kept :]
        order = None
        if chunk.order is not None:
            parts = [self._held_order] if chunk.continues and self._held_order is not None else []
            together = pa.concat_arrays([*parts, chunk.order])
            order = together.filter(pa.array(early))
            self._held_order = together[len(together) - kept :]
        self._seen = int(seen[last] + lengths[last])
        return replace(chunk, offsets=offsets_of(made), steps=steps, order=order)

    @staticmethod
    def _after_first(lengths: Array, left_out: Array) -> Array:
        """Which steps come after the first few of their sequences."""
        late: Array = _places(lengths) >= np.repeat(left_out, lengths)
        return late

    @staticmethod
    def _before_last(lengths: Array, kept: Array) -> Array:
        """Which steps are among the first few of their sequences."""
        early: Array = _places(lengths) < np.repeat(kept, lengths)
        return early


def _places(lengths: Array) -> Array:
    """The number of each step in its sequence."""
    starts = np.cumsum(lengths) - lengths
    places: Array = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    return places


def _joined(held: Array | None, values: Array) -> Array:
    return values if held is None or not len(held) else np.concatenate([held, values])
