"""The list of an epoch's batches: a pure function of seed, epoch and items, made pool by pool and never as a whole.

The items' order is a permutation; runs of it are pools, whose items are grouped by length into batches, which are
shuffled. What is kept is one pool: about `POOL_ITEMS` numbers, whatever the store's size. In epoch 0 the longest item
changes places with the first one and its batch comes first, so that what does not fit into memory fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from lowtide.data.loading.buckets import BatchSize, Rounding, grouped, padded_steps
from lowtide.data.loading.drafts import Draft, PositionData, no_position
from lowtide.data.loading.order import Ints, Permutation, hashes, key_of
from lowtide.data.loading.policy import Items
from lowtide.data.loading.ranks import Deal, dealt_end, rounds_of
from lowtide.errors import LowtideError

POOL_ITEMS = 1 << 17
"""Items grouped by length together; the last pool is at most twice as large."""
_LEAST_BATCHES, _MOST_BATCHES = 16, 4096
"""Of a pool, where batches are by count."""
_POOLS_KEPT = 2
"""Pools of which the batches are remembered, for those who ask for them out of order."""
_ORDER, _LENGTHS, _BATCHES = 1, 2, 3
"""Keep what is drawn for the same seed and epoch apart."""


@dataclass(frozen=True)
class ListSettings:
    """What decides on an epoch's batches, beside the items."""

    size: BatchSize
    rounding: Rounding
    seed: int
    shuffle: bool
    drop_last: bool
    """Whether what does not fill a batch, or a round of all ranks, is left out."""


@dataclass(frozen=True)
class _Position:
    """Before which batch: `taken` further than the first of a pool, which comes after `before` others."""

    epoch: int
    pool: int
    before: int
    taken: int
    deals: tuple[Deal, ...]

    def to_data(self) -> PositionData:
        deals = [[deal.at, deal.ranks] for deal in self.deals]
        return {"epoch": self.epoch, "pool": self.pool, "before": self.before, "taken": self.taken, "deals": deals}

    @staticmethod
    def of(data: Any) -> _Position:  # noqa: ANN401 - what a file held, perhaps
        """The position that `to_data` described.

        Raises:
            LowtideError: It describes none.
        """
        if not isinstance(data, Mapping) or set(data) != {field.name for field in fields(_Position)}:
            raise no_position(data)
        numbers = dict(data)
        deals = numbers.pop("deals")
        if not isinstance(deals, list) or not deals or not all(isinstance(deal, list) for deal in deals):
            raise no_position(data)
        told = [*numbers.values(), *chain.from_iterable(deals)]
        if not all(type(number) is int and number >= 0 for number in told):
            raise no_position(data)
        if not all(len(deal) == 2 and deal[1] for deal in deals):  # noqa: PLR2004 - at, ranks
            raise no_position(data)
        return _Position(**numbers, deals=tuple(Deal(*deal) for deal in deals))


class BatchList:
    """One rank's part of the batches of all epochs."""

    def __init__(self, items: Items, settings: ListSettings, *, rank: int = 0, ranks: int = 1) -> None:
        """Prepare the list; nothing is computed yet."""
        self._items = items
        self._settings = settings
        self._rank = rank
        self._ranks = ranks
        self._pool_items = _pool_items(settings.size.count)
        self._pools = max(1, items.count // self._pool_items)
        self._first_batches = lru_cache(maxsize=1)(self._find_first_batches)
        self._dealt = lru_cache(maxsize=_POOLS_KEPT)(self._deal)

    def start(self, epoch: int) -> PositionData:
        """The position before an epoch's first batch."""
        return _Position(epoch, 0, 0, 0, (Deal(0, self._ranks),)).to_data()

    def adopt(self, position: PositionData) -> PositionData:
        """What other ranks have left of an epoch, dealt out to these.

        Raises:
            LowtideError: It is no position in this list.
        """
        found = _Position.of(position)
        if found.pool >= self._pools:
            raise no_position(position)
        at, last = found.before + found.taken, found.deals[-1]
        if last.ranks == self._ranks:
            return position
        earlier = found.deals[:-1] if last.at == at else found.deals
        return replace(found, deals=(*earlier, Deal(at, self._ranks))).to_data()

    def after(self, position: PositionData) -> Iterator[tuple[Draft, PositionData]]:
        """This rank's batches from a position to the end of its epoch."""
        now = _Position.of(position)
        assert now.deals[-1].ranks == self._ranks
        pool, before, place = now.pool, now.before, now.before + now.taken
        batches = self._dealt(now.epoch, pool, before, now.deals)
        while not self._settings.drop_last or self._reaches(now, pool, before, place + self._ranks):
            mine = place + self._rank
            while mine >= before + len(batches):
                pool, before = pool + 1, before + len(batches)
                if pool >= self._pools:
                    return
                batches = self._dealt(now.epoch, pool, before, now.deals)
            place += self._ranks
            next_position = replace(now, pool=pool, before=before, taken=place - before)
            yield self.draft(now.epoch, mine, batches[mine - before]), next_position.to_data()

    def count(self, epoch: int) -> int:
        """This rank's batches of a whole epoch."""
        return rounds_of(int(self._first_batches(epoch)[-1]), self._ranks, whole_only=self._settings.drop_last)

    def longest(self) -> int:
        """Steps of the longest item."""
        return int(self._items.lengths(np.asarray([self._items.longest()]))[0])

    def largest(self) -> tuple[int, int]:
        """Sequences and padded steps that no batch exceeds: both, or their product where that is what is limited."""
        size = self._settings.size
        longest = int(self._settings.rounding(np.asarray([self.longest()]))[0])
        if size.count is not None:
            return min(size.count, self._items.count), longest
        assert size.padded_steps is not None
        return -(-size.padded_steps // longest), longest  # rounded up: of shorter ones, more may come

    def most_rows(self) -> int:
        """Sequences that no batch exceeds."""
        size = self._settings.size
        if size.count is not None:
            return min(size.count, self._items.count)
        assert size.padded_steps is not None
        shortest = int(self._settings.rounding(np.ones(1, np.int64))[0])
        return min(size.padded_steps // shortest, self._items.count)

    def draft(self, epoch: int, number: int, items: Ints) -> Draft:
        """The draft of a batch of these items."""
        spans = self._items.spans(items, epoch)
        longest = spans.lengths.max(initial=0, keepdims=True)
        return Draft(spans, int(self._settings.rounding(longest)[0]), epoch, number)

    def at(self, epoch: int, number: int) -> Draft:
        """This rank's batch of a number, in an epoch dealt from its start.

        Raises:
            LowtideError: There is none.
        """
        if not 0 <= number < self.count(epoch):
            raise LowtideError(
                what=f"batch {number} of {self.count(epoch)} was asked for",
                why="batches are numbered from 0 in every epoch",
                fix=f"ask for numbers from 0 to {self.count(epoch) - 1}",
            )
        place = number * self._ranks + self._rank
        before = self._first_batches(epoch)
        pool = int(np.searchsorted(before[:-1], place, side="right")) - 1
        batches = self._dealt(epoch, pool, int(before[pool]), (Deal(0, self._ranks),))
        return self.draft(epoch, place, batches[place - int(before[pool])])

    def pool(self, epoch: int, number: int) -> list[Ints]:
        """The items of each batch of one pool, before they are dealt."""
        size, rounding = self._settings.size, self._settings.rounding
        if not self._settings.shuffle:
            items = self._places(number)
            cuts = size.cuts(rounding(self._items.lengths(items)), short_first=False)
            return self._full(np.split(items, cuts[1:-1]))
        items = self._shuffled(epoch, number)
        lengths = self._items.lengths(items)
        drawn = hashes(key_of(self._settings.seed, epoch, _LENGTHS), items)
        order, cuts = grouped(lengths, drawn, size, rounding, full_longest=epoch == 0)
        batches = self._full(np.split(items[order], cuts[1:-1]))
        turns = np.argsort(hashes(key_of(self._settings.seed, epoch, _BATCHES, number), np.arange(len(batches))))
        if epoch == 0 and number == 0 and batches:
            largest = int(np.argmax(padded_steps(lengths, order, cuts, rounding)[: len(batches)]))
            turns = np.concatenate([[largest], turns[turns != largest]])
        return [batches[turn] for turn in turns]

    def _deal(self, epoch: int, pool: int, before: int, deals: tuple[Deal, ...]) -> list[Ints]:
        batches = self.pool(epoch, pool)
        if pool < self._pools - 1 or self._settings.drop_last:
            return batches
        return dealt_end(batches, before, deals)

    def _reaches(self, position: _Position, pool: int, before: int, places: int) -> bool:
        """Whether the list has so many places; looked for from a pool on, before which there are some."""
        for later in range(pool, self._pools):
            before += len(self._dealt(position.epoch, later, before, position.deals))
            if before >= places:
                return True
        return False

    def _full(self, batches: list[Ints]) -> list[Ints]:
        count = self._settings.size.count
        if not self._settings.drop_last or count is None:
            return batches
        return [batch for batch in batches if len(batch) == count]

    def _places(self, pool: int) -> Ints:
        last = pool == self._pools - 1
        first = pool * self._pool_items
        return np.arange(first, self._items.count if last else first + self._pool_items)

    def _shuffled(self, epoch: int, pool: int) -> Ints:
        permutation = Permutation(self._items.count, key_of(self._settings.seed, epoch, _ORDER))
        places = self._places(pool)
        items = permutation(places)
        if epoch == 0:
            longest = np.asarray([self._items.longest()])
            first, home = permutation(np.zeros(1, np.int64)), permutation.places_of(longest)
            items[places == home] = first
            items[places == 0] = longest
        return items

    def _find_first_batches(self, epoch: int) -> Ints:
        """How many batches come before each pool, and how many there are."""
        count = self._settings.size.count
        if count is not None:
            last = self._items.count // count if self._settings.drop_last else -(-self._items.count // count)
            return np.append(np.arange(self._pools) * (self._pool_items // count), last)
        return np.cumsum([0, *(len(self.pool(epoch, number)) for number in range(self._pools))])


def _pool_items(count: int | None) -> int:
    """Items of a pool: whole batches, where these are of so many items."""
    if count is None:
        return POOL_ITEMS
    return min(max(-(-POOL_ITEMS // count), _LEAST_BATCHES), _MOST_BATCHES) * count
