"""Lanes for truncated back-propagation through time: every row of a batch goes on where it ended in the batch before.

A lane takes one sequence after the other. Each batch holds the next `steps` steps of what each lane is at, and says
which lanes begin a new sequence. Whichever lane is done takes the next sequence, so lanes end nearly together.

```python
step = lowtide.StreamStep(model, loss_fn, window_steps=128, stateful=True)
for batch in store.loader(lanes=Lanes(32, steps=128)):
    step.reset(batch.begins)
    step(batch.inputs, batch.targets, lengths=batch.lengths)
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappush, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.loading.buckets import Rounding
from lowtide.data.loading.drafts import Draft, PositionData, no_position
from lowtide.data.loading.numbers import make_plain
from lowtide.data.loading.order import Ints, Permutation, key_of
from lowtide.data.loading.policy import Items, Spans
from lowtide.errors import LowtideError

_ORDER = 1
_NONE: Ints = np.zeros(0, np.int64)
_BLOCK = 1 << 12
"""Items whose places are computed together."""


@dataclass(frozen=True)
class Lanes:
    """How many sequences run side by side, and how many steps of each a batch holds."""

    count: int
    """Over all ranks: each has an equal part of them. All lanes of one rank may end before those of another: its last
    batches have no valid step then."""
    steps: int

    def __post_init__(self) -> None:
        """Refuse what is no number."""
        make_plain(self, "count", "steps")
        for name, value in (("count", self.count), ("steps", self.steps)):
            if type(value) is not int or value < 1:
                raise LowtideError(
                    what=f"Lanes({name}={value!r})",
                    why="it counts lanes, or time steps",
                    fix="give a whole number above 0",
                )


class LaneList:
    """One rank's lanes through all epochs."""

    def __init__(
        self, items: Items, lanes: Lanes, rounding: Rounding, *, seed: int, shuffle: bool, rank: int, ranks: int
    ) -> None:
        """Prepare the lanes; nothing is computed yet.

        Raises:
            LowtideError: They cannot be dealt out evenly, or there are more of them than items.
        """
        self._items = items
        self._lanes = lanes
        self._rounding = rounding
        self._seed = seed
        self._shuffle = shuffle
        self._ranks = ranks
        self._own = _own_lanes(lanes, rank, ranks)
        if items.count < lanes.count:
            raise LowtideError(
                what=f"{lanes.count} lanes for {items.count} items",
                why="every lane runs through a sequence of its own, so some would never have one",
                fix="use fewer lanes, or cut the sequences into parts: max_length= and over_length='split'",
            )
        self._count = lru_cache(maxsize=1)(self._count_batches)

    def start(self, epoch: int) -> PositionData:
        """Every lane idle."""
        nothing = np.zeros(self._lanes.count, np.int64)
        return _position(epoch, 0, 0, nothing - 1, nothing)

    def adopt(self, position: PositionData) -> PositionData:
        """The same lanes, whoever runs them.

        Raises:
            LowtideError: It is about another number of lanes, or is no position.
        """
        _check(position, self._items.count)
        if len(position["items"]) != self._lanes.count:
            raise LowtideError(
                what=f"a state of {len(position['items'])} lanes was given to {self._lanes.count}",
                why="each lane goes on in the middle of a sequence",
                fix="use as many lanes as before; ranks may be others",
            )
        return position

    def after(self, position: PositionData) -> Iterator[tuple[Draft, PositionData]]:
        """The batches from a position to the end of its epoch."""
        epoch, number, following = (int(position[name]) for name in ("epoch", "number", "next"))
        items, done = np.asarray(position["items"], np.int64), np.asarray(position["done"], np.int64)
        order = self._order(epoch)
        while True:
            idle = np.flatnonzero(items < 0)[: self._items.count - following]
            if idle.size:
                items[idle] = order(np.arange(following, following + len(idle)))
                following += len(idle)
            if (items < 0).all():
                return
            whole, begins = self._spans(items, epoch), (done == 0) & (items >= 0)
            stop = np.minimum(whole.start + done + self._lanes.steps, whole.stop)
            draft = self._draft(Spans(whole.sequence, whole.start + done, stop), begins, epoch, number)
            done = np.where(stop == whole.stop, 0, done + self._lanes.steps)
            items = np.where(stop == whole.stop, -1, items)
            number += 1
            yield draft, _position(epoch, number, following, items, done)

    def count(self, epoch: int) -> int:
        """Batches of a whole epoch."""
        return self._count(epoch)

    def longest(self) -> int:
        """Steps of one lane in a batch, at most."""
        return min(self._lanes.steps, int(self._items.lengths(np.asarray([self._items.longest()]))[0]))

    def largest(self) -> tuple[int, int]:
        """Sequences and padded steps that no batch exceeds."""
        return len(self._own), int(self._rounding(np.asarray([self.longest()]))[0])

    def most_rows(self) -> int:
        """Sequences of each batch."""
        return len(self._own)

    def _order(self, epoch: int) -> Permutation | _InOrder:
        return Permutation(self._items.count, key_of(self._seed, epoch, _ORDER)) if self._shuffle else _InOrder()

    def _spans(self, items: Ints, epoch: int) -> Spans:
        """Where the lanes' items lie; idle lanes have no steps of no sequence."""
        spans = self._items.spans(np.maximum(items, 0), epoch)
        idle = items < 0
        return Spans(np.where(idle, -1, spans.sequence), np.where(idle, 0, spans.start), np.where(idle, 0, spans.stop))

    def _draft(self, spans: Spans, begins: NDArray[np.bool_], epoch: int, number: int) -> Draft:
        own = spans[self._own]
        longest = own.lengths.max(initial=1, keepdims=True)
        name = number * self._lanes.count + int(self._own[0])
        return Draft(own, int(self._rounding(longest)[0]), epoch, name, begins[self._own])

    def _count_batches(self, epoch: int) -> int:
        ends: list[int] = []
        order = self._order(epoch)
        for first in range(0, self._items.count, _BLOCK):
            items = order(np.arange(first, min(first + _BLOCK, self._items.count)))
            for batches in (-(-self._items.lengths(items) // self._lanes.steps)).tolist():
                if len(ends) < self._lanes.count:
                    heappush(ends, batches)
                else:
                    heapreplace(ends, ends[0] + batches)
        return max(ends)


class _InOrder:
    """Items as they are numbered."""

    def __call__(self, places: Ints) -> Ints:
        return places


def _position(epoch: int, number: int, following: int, items: Ints, done: Ints) -> PositionData:
    """Before which batch; the item that is taken next; and of each lane its item (-1: none) and the steps done."""
    return {"epoch": epoch, "number": number, "next": following, "items": items.tolist(), "done": done.tolist()}


def _check(position: Any, count: int) -> None:  # noqa: ANN401 - what a file held, perhaps
    """Refuse what is no position among so many items."""
    if not isinstance(position, Mapping) or set(position) != set(_position(0, 0, 0, _NONE, _NONE)):
        raise no_position(position)
    items, done = position["items"], position["done"]
    if not isinstance(items, list) or not isinstance(done, list) or len(items) != len(done):
        raise no_position(position)
    counted = [*done, *(position[name] for name in ("epoch", "number", "next"))]
    if not all(type(number) is int and number >= 0 for number in counted):
        raise no_position(position)
    if not all(type(item) is int and -1 <= item < count for item in items):
        raise no_position(position)


def _own_lanes(lanes: Lanes, rank: int, ranks: int) -> Ints:
    if lanes.count % ranks:
        raise LowtideError(
            what=f"{lanes.count} lanes for {ranks} ranks",
            why="each rank runs the same number of lanes",
            fix=f"use a multiple of {ranks} lanes",
        )
    share = lanes.count // ranks
    return np.arange(rank * share, (rank + 1) * share)
