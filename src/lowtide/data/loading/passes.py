"""One pass over all steps of all sequences, or of all rows, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lowtide.data.loading.order import Ints
from lowtide.data.loading.policy import Items, Spans

STEPS = 1 << 20
_SEQUENCES = 1 << 14


def pieces_of(lengths: Ints, steps: int = STEPS) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Sequences, first and last steps, that cover all steps in order, about `steps` at a time.

    A longer sequence comes in several pieces, each by itself; one without steps does not come.
    """
    for first in range(0, len(lengths), _SEQUENCES):
        block = np.asarray(lengths[first : first + _SEQUENCES], np.int64)
        full = np.flatnonzero(np.diff(np.cumsum(block) // steps))
        long = np.flatnonzero(block > steps)
        for rows in np.split(np.arange(len(block)), np.unique([*(full + 1), *long, *(long + 1)])):
            chosen = rows[block[rows] > 0]
            if len(chosen) == 1:
                yield from _parts(first + chosen, int(block[chosen[0]]), steps)
            elif len(chosen):
                yield first + chosen, np.zeros_like(chosen), block[chosen]


def rows_of(items: Items) -> Iterator[Spans]:
    """All rows of the first epoch, some at a time."""
    for first in range(0, items.count, _SEQUENCES):
        yield items.spans(np.arange(first, min(first + _SEQUENCES, items.count)), 0)


def steps_of(items: Items, steps: int = STEPS) -> Iterator[Spans]:
    """All steps of these rows, about `steps` at a time: a longer row comes in several parts."""
    for spans in rows_of(items):
        for rows, starts, stops in pieces_of(spans.lengths, steps):
            first = spans.start[rows]
            yield Spans(spans.sequence[rows], first + starts, first + stops)


def _parts(row: Ints, length: int, steps: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    for start in range(0, length, steps):
        yield row, np.asarray([start]), np.asarray([min(start + steps, length)])
