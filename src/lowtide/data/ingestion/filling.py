"""Missing values dropped or filled, chunk by chunk, as the policies say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lowtide.data.fields import Array
from lowtide.data.ingestion.dtypes import UnfitError
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.missing import Policy
from lowtide.data.ingestion.sources.chunk import Chunk, Mask, offsets_of
from lowtide.data.ingestion.tally import Tally


@dataclass
class _Last:
    """The last known value of each feature of a sequence that goes on in the next chunk."""

    values: Array
    known: Mask


class Filler:
    """Fills one field."""

    def __init__(self, plan: FieldPlan, codes: Mapping[int, int], tally: Tally) -> None:
        """Fill as the plan says.

        Args:
            plan: The field, with a policy for each feature.
            codes: For categories to fill in, by feature: their codes.
            tally: Counts what is filled.
        """
        self._plan = plan
        self._codes = codes
        self._tally = tally
        self._last: _Last | None = None

    def fill(self, values: Array, missing: Mask | None, offsets: Array, *, continues: bool) -> tuple[Array, Mask]:
        """Fill what is to be filled.

        Args:
            values: (n,) or (n, width).
            missing: Which of them are missing.
            offsets: Where each sequence begins, and the end.
            continues: Whether the first sequence goes on from the values before.

        Returns:
            The values, and which steps are to be dropped, (n,).

        Raises:
            UnfitError: One is missing that must not be.
        """
        forward = any(policy.kind == "forward" for policy in self._plan.policies)
        if missing is None and not forward:
            return values, np.zeros(len(values), dtype=np.bool_)
        table = values.reshape(len(values), len(self._plan.policies))
        absent = np.zeros(table.shape, dtype=np.bool_) if missing is None else missing.reshape(table.shape)
        if absent.any():
            table = table.copy()
        before = self._last if continues else None
        if forward and len(table):
            self._last = self._ends(table, absent, offsets, before)
        dropped = np.zeros(len(table), dtype=np.bool_)
        for feature, policy in enumerate(self._plan.policies):
            rows = np.flatnonzero(absent[:, feature])
            if len(rows):
                dropped |= self._fill_feature(table, rows, feature, policy, offsets, before)
        return table.reshape(values.shape), dropped

    def _fill_feature(
        self, table: Array, rows: Array, feature: int, policy: Policy, offsets: Array, before: _Last | None
    ) -> Mask:
        """Fill a feature in place; which steps are to be dropped."""
        dropped = np.zeros(len(table), dtype=np.bool_)
        column = self._plan.field.columns[feature]
        if policy.kind == "error":
            raise _missing(self._plan.field.name, int(rows[0]), feature)
        if policy.kind == "drop":
            dropped[rows] = True
            return dropped
        if policy.kind == "forward":
            self._carry(table, rows, feature, policy, offsets, before)
        elif policy.kind == "value":
            table[rows, feature] = self._value(feature, policy)
        # The mean is known, and filled in, only later: until then, NaN stands for it.
        self._tally.filled[f"missing values of {column!r} ({policy.kind})"] += len(rows)
        return dropped

    def _carry(
        self, table: Array, rows: Array, feature: int, policy: Policy, offsets: Array, before: _Last | None
    ) -> None:
        source = np.arange(len(table))
        source[rows] = -1
        source = np.maximum.accumulate(source)[rows]
        starts = offsets[np.searchsorted(offsets, rows, side="right") - 1]
        inside = source >= starts
        table[rows[inside], feature] = table[source[inside], feature]
        leading = rows[~inside]
        if before is not None and before.known[feature]:
            carried = leading < offsets[1]
            table[leading[carried], feature] = before.values[feature]
            leading = leading[~carried]
        if not len(leading):
            return
        if policy.value is None:
            raise _missing(self._plan.field.name, int(leading[0]), feature, first=True)
        table[leading, feature] = self._value(feature, policy)

    def _ends(self, table: Array, absent: Mask, offsets: Array, before: _Last | None) -> _Last:
        """The last known values of the chunk's last sequence."""
        start = int(offsets[-2])
        width = table.shape[1]
        only = len(offsets) == 2  # noqa: PLR2004 - one sequence, which `before` belongs to
        values = before.values.copy() if before is not None and only else np.zeros(width, dtype=table.dtype)
        known = before.known.copy() if before is not None and only else np.zeros(width, dtype=np.bool_)
        there = ~absent[start:]
        for feature in range(width):
            rows = np.flatnonzero(there[:, feature])
            if len(rows):
                values[feature] = table[start + rows[-1], feature]
                known[feature] = True
        return _Last(values, known)

    def _value(self, feature: int, policy: Policy) -> float | int:
        if feature in self._codes:
            return self._codes[feature]
        assert policy.value is not None
        assert not isinstance(policy.value, str)
        return policy.value


def drop_steps(chunk: Chunk, dropped: Mask) -> Chunk:
    """Leave steps out; a sequence may be left without any."""
    if not dropped.any():
        return chunk
    kept = ~dropped
    counts = np.add.reduceat(np.append(kept, False).astype(np.int64), chunk.offsets[:-1]) * (chunk.lengths > 0)
    return replace(
        chunk,
        offsets=offsets_of(counts),
        steps={name: array[kept] for name, array in chunk.steps.items()},
        missing={name: mask[kept] if name in chunk.steps else mask for name, mask in chunk.missing.items()},
        order=None if chunk.order is None else chunk.order.filter(pa.array(kept)),
    )


def drop_sequences(chunk: Chunk, dropped: Mask) -> Chunk:
    """Leave whole sequences out."""
    if not dropped.any():
        return chunk
    without = drop_steps(chunk, np.repeat(dropped, chunk.lengths))
    kept = ~dropped
    return replace(
        without,
        names=chunk.names.filter(pa.array(kept)),
        offsets=offsets_of(without.lengths[kept]),
        values={name: array[kept] for name, array in chunk.values.items()},
        missing={name: mask[kept] if name in chunk.values else mask for name, mask in without.missing.items()},
        continues=chunk.continues and bool(kept[0]),
        goes_on=chunk.goes_on and bool(kept[-1]),
    )


def _missing(field: str, row: int, feature: int, *, first: bool = False) -> UnfitError:
    return UnfitError(
        row,
        feature,
        "the value is missing" + (", and none comes before it in its sequence" if first else ""),
        "what is missing is neither guessed nor left out without being asked for",
        f'missing={{"{field}": ["forward", 0.0]}}, or "drop"'
        if first
        else f'correct it, or say what becomes of it: missing={{"{field}": "drop"}}, "forward", "mean" or a number',
    )


def policies_of(plans: Sequence[FieldPlan]) -> dict[str, object]:
    """What becomes of missing values, by column, where that is not an error; for the notes."""
    return {
        column: policy.to_json()
        for plan in plans
        for column, policy in zip(plan.field.columns, plan.policies, strict=True)
        if policy.kind != "error"
    }
