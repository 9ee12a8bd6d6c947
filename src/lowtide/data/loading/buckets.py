"""Batches of nearly equal lengths from a pool of items: little padding, and other companions in each epoch.

A pool is sorted by length, with every length moved by a random amount first, and cut into batches. The more is moved,
the less often two sequences that shared a batch share the next one, and the more is padded: so the largest amount is
taken that keeps padding within `PADDING_GOAL`. Noise in proportion to the mean of an item's length and the pool's mean
length buys the most mixing for its padding on long-tailed lengths. A pool holds many batches, since with few the
longest items, far apart in length, would fill a large part of it with padding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.data.loading.numbers import plain
from lowtide.data.loading.order import Hashes, Ints
from lowtide.errors import LowtideError

PADDING_GOAL = (37, 1000)
"""Part of all steps that may be padding before lengths are moved less."""

_AMOUNTS = (32, 26, 21, 17, 14, 11, 9, 8)
"""By how much lengths are moved at most, in 1/1024 of them, from the largest; the least is kept whatever it costs."""
_NOISE_BITS = 12
_KEY_BITS = 16


@dataclass(frozen=True)
class Rounding:
    """To which lengths batches are padded."""

    sizes: tuple[int, ...] = ()
    """Allowed ones, rising; none: any."""
    multiple: int = 1
    """Padded lengths are multiples of this."""

    @staticmethod
    def of(asked: int | Sequence[int] | None) -> Rounding:
        """From what a user gives: a number to be a multiple of, or the few sizes allowed.

        Raises:
            LowtideError: It is not one or more whole numbers above 0.
        """
        if asked is None:
            return Rounding()
        given = np.asarray(asked, object)
        sizes = [plain(size) for size in given.ravel().tolist()]
        if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
            raise LowtideError(
                what=f"round_lengths={asked!r}",
                why="batches are padded to a multiple of a number of steps, or to one of a few numbers of steps",
                fix="give round_lengths=64, or round_lengths=[64, 128, 256, 1024], whole numbers above 0",
            )
        return Rounding(multiple=sizes[0]) if given.ndim == 0 else Rounding(tuple(sorted(set(sizes))))

    def __call__(self, lengths: Ints) -> Ints:
        """Each length rounded up."""
        if self.sizes:
            return np.asarray(self.sizes, np.int64)[np.searchsorted(self.sizes, lengths)]
        return lengths if self.multiple == 1 else -(-lengths // self.multiple) * self.multiple

    def largest_within(self, steps: int) -> int:
        """The longest length that is padded to at most so many steps; 0 where none is."""
        if self.sizes:
            return max((size for size in self.sizes if size <= steps), default=0)
        return steps // self.multiple * self.multiple

    def check(self, longest: int) -> None:
        """Refuse sizes that the longest item does not fit.

        Raises:
            LowtideError: It is longer than the largest size.
        """
        if self.sizes and longest > self.sizes[-1]:
            raise LowtideError(
                what=f"the longest item has {longest} steps, the largest of round_lengths is {self.sizes[-1]}",
                why="every batch is padded to one of these sizes, and nothing is cut unasked",
                fix=f"add a size of at least {longest}, or give max_length={self.sizes[-1]}",
            )


@dataclass(frozen=True)
class BatchSize:
    """When a batch is full: at a number of sequences, or at a number of steps with padding. One of the two."""

    count: int | None = None
    padded_steps: int | None = None

    def cuts(self, padded: Ints, *, short_first: bool) -> Ints:
        """Where to cut items into batches: the first item of each, and the end.

        Args:
            padded: What each item is padded to at least; batches are runs of them.
            short_first: Whether the batch that is not full comes first, rather than last; by count only.
        """
        if self.count is not None:
            return _cuts_by_count(len(padded), self.count, short_first=short_first)
        assert self.padded_steps is not None
        return _cuts_by_steps(padded, self.padded_steps)


def grouped(
    lengths: Ints, drawn: Hashes, size: BatchSize, rounding: Rounding, *, full_longest: bool
) -> tuple[Ints, Ints]:
    """Group a pool's items into batches of nearly equal lengths, the longest first.

    Args:
        lengths: Steps of each item of the pool, in random order.
        drawn: A random number for each.
        size: When a batch is full.
        rounding: What batches are padded to.
        full_longest: Whether the longest item lies in a full batch. Else the batch that is not full is the one with
            the longest items, where it saves the most padding.

    Returns:
        The items' order, as places in the pool, and the cuts between batches in that order.
    """

    def attempt(amount: int) -> tuple[Ints, Ints]:
        order = np.argsort(-_moved(lengths, drawn, amount), kind="stable")
        return order, size.cuts(rounding(lengths[order]), short_first=not full_longest)

    def is_within_goal(amount: int) -> bool:
        order, cuts = attempt(amount)
        padded = int(padded_steps(lengths, order, cuts, rounding).sum())
        part, whole = PADDING_GOAL
        return (padded - int(lengths.sum())) * whole <= part * padded

    *larger, least = _AMOUNTS
    place = bisect_left(larger, 1, key=is_within_goal)  # padding falls with the amount
    return attempt(larger[place] if place < len(larger) else least)


def padded_steps(lengths: Ints, order: Ints, cuts: Ints, rounding: Rounding) -> Ints:
    """Steps of each batch with padding."""
    longest = np.maximum.reduceat(lengths[order], cuts[:-1])
    return rounding(longest) * np.diff(cuts)


def _moved(lengths: Ints, drawn: Hashes, amount: int) -> Ints:
    """Every length, in 1/2^16 of a step, moved by up to `amount`/1024 of the mean of itself and the mean length."""
    noise = (drawn >> np.uint64(64 - _NOISE_BITS - 1)).astype(np.int64) - (1 << _NOISE_BITS)
    mean = int(lengths.sum()) // max(1, len(lengths))
    scale = _NOISE_BITS + 11 - _KEY_BITS  # 2^11: half of 1/1024
    return (lengths << _KEY_BITS) + ((lengths + mean) * (noise * amount) >> scale)


def _cuts_by_count(items: int, count: int, *, short_first: bool) -> Ints:
    inner = np.arange(items % count if short_first else 0, items, count)
    return np.unique(np.concatenate([[0], inner, [items]])).astype(np.int64)


def _cuts_by_steps(padded: Ints, most: int) -> Ints:
    cuts = [0]
    while cuts[-1] < len(padded):
        first = cuts[-1]
        run = padded[first : first + max(1, most // max(1, int(padded[first])))]
        # Items are only nearly sorted: a longer one further on leaves room for fewer.
        while len(run) > 1 and len(run) * int(run.max()) > most:
            run = run[: max(1, min(len(run) - 1, most // int(run.max())))]
        cuts.append(first + len(run))
    return np.asarray(cuts, np.int64)
