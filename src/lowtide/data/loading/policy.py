"""What the rows of batches are cut from: whole sequences, or one part of each; and what becomes of those too long.

An item is one row of one batch: some steps of one sequence. Items are numbered and never listed: where an item lies is
computed when it is wanted. Windows, of which a sequence has several, are in `windows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lowtide.data.loading.order import Ints, hashes, key_of
from lowtide.errors import LowtideError

Cut = Literal["head", "tail", "random"]
OverLength = Literal["error", "split", "drop"]

BLOCK = 1 << 18
"""Lengths looked at together: what is computed from all of them takes no more memory than this many."""


@dataclass(frozen=True)
class Spans:
    """Steps [start, stop) of sequences, one row each."""

    sequence: Ints
    """Numbers of sequences within what is loaded from; -1: a row without any."""
    start: Ints
    stop: Ints

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def lengths(self) -> Ints:
        """Steps of each."""
        return self.stop - self.start

    def __getitem__(self, rows: slice | Ints) -> Spans:
        return Spans(self.sequence[rows], self.start[rows], self.stop[rows])


@dataclass(frozen=True)
class PolicyReport:
    """What a loader makes of the sequences: nothing is left out or cut without being counted here."""

    sequences: int
    """All there are."""
    items: int
    """Rows of batches that they become, each epoch."""
    empty: int = 0
    """Sequences left out because they have no steps."""
    cut: int = 0
    """Sequences of which only a part is used."""
    split: int = 0
    """Sequences longer than allowed, used in several parts."""
    dropped: int = 0
    """Sequences longer than allowed, left out."""

    @property
    def used(self) -> int:
        """Sequences of which there are rows."""
        return self.sequences - self.empty - self.dropped

    def __str__(self) -> str:
        counts = {"empty": self.empty, "cut": self.cut, "split": self.split, "dropped": self.dropped}
        told = [f"{count} {name}" for name, count in counts.items() if count]
        return f"{self.items} items of {self.sequences} sequences" + (f" ({', '.join(told)})" if told else "")


class Items(Protocol):
    """Rows of batches, by number."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def report(self) -> PolicyReport:
        """What became of the sequences."""

    def lengths(self, items: Ints) -> Ints:
        """Steps of each."""

    def spans(self, items: Ints, epoch: int) -> Spans:
        """Where they lie in an epoch."""

    def longest(self) -> int:
        """An item that none is longer than; 0 where there is none at all."""

    def parts(self, sequences: Ints) -> Ints:
        """How many items there are of each of these sequences."""


class SequenceItems:
    """One item a sequence: the whole of it, or `limit` steps from its head, its tail, or anywhere."""

    def __init__(
        self, lengths: Ints, *, limit: int | None = None, cut: Cut = "head", most: int | None = None, seed: int = 0
    ) -> None:
        """Take sequences of these lengths, which may be mapped from disk.

        Args:
            lengths: Steps of each.
            limit: Steps an item has at most: of longer sequences a part is used; None: all.
            cut: Which part: the first steps, the last, or others in each epoch.
            most: Steps a sequence has at most: longer ones are left out; None: none is.
            seed: Of the random parts.
        """
        assert limit is None or most is None
        self._lengths = np.asarray(lengths)  # still mapped, without the slow ways of a memmap
        self._limit = limit
        self._cut = cut
        self._most = most
        self._seed = seed
        empty, longer = count_lengths(lengths, limit or most)
        cuts, drops = (0, longer) if limit is None else (longer, 0)
        self._kept = _Kept(lengths, most=most, out=empty + drops)
        self.count = self._kept.count
        self.report = PolicyReport(len(lengths), self.count, empty=empty, cut=cuts, dropped=drops)

    def lengths(self, items: Ints) -> Ints:
        """Steps of each."""
        whole = np.asarray(self._lengths[self._kept.sequences(items)], np.int64)
        return whole if self._limit is None else np.minimum(whole, self._limit)

    def spans(self, items: Ints, epoch: int) -> Spans:
        """Where they lie in an epoch."""
        sequences = self._kept.sequences(items)
        whole = np.asarray(self._lengths[sequences], np.int64)
        if self._limit is None:
            return Spans(sequences, np.zeros_like(whole), whole)
        lengths = np.minimum(whole, self._limit)
        start = self._starts(sequences, whole - lengths, epoch)
        return Spans(sequences, start, start + lengths)

    def longest(self) -> int:
        """An item that none is longer than."""
        return self._kept.item_of(longest_of(self._lengths, self._most)) if self.count else 0

    def parts(self, sequences: Ints) -> Ints:
        """One of each sequence that is kept."""
        lengths = self._lengths[sequences]
        return _are_kept(lengths, self._most).astype(np.int64)

    def _starts(self, sequences: Ints, spare: Ints, epoch: int) -> Ints:
        if self._cut == "head":
            return np.zeros_like(spare)
        if self._cut == "tail":
            return spare
        drawn = hashes(key_of(self._seed, epoch, _CROPS), sequences)
        return (drawn % (spare + 1).astype(np.uint64)).astype(np.int64)


class _Kept:
    """The sequences that items are made of: a table of them only where some are left out."""

    def __init__(self, lengths: Ints, *, most: int | None, out: int) -> None:
        """Keep all but `out` that have no steps, or more than `most`."""
        self.count = len(lengths) - out
        self._table: Ints | None = None
        if out:
            self._table = np.empty(self.count, np.int64)
            filled = 0
            for first in range(0, len(lengths), BLOCK):
                found = np.flatnonzero(_are_kept(lengths[first : first + BLOCK], most)) + first
                self._table[filled : filled + len(found)] = found
                filled += len(found)

    def sequences(self, items: Ints) -> Ints:
        """The sequences of these items."""
        return items if self._table is None else self._table[items]

    def item_of(self, sequence: int) -> int:
        """The item of a sequence that is kept."""
        return sequence if self._table is None else int(np.searchsorted(self._table, sequence))


def _are_kept(lengths: Ints, most: int | None) -> NDArray[np.bool_]:
    return (lengths > 0) if most is None else (lengths > 0) & (lengths <= most)


def count_lengths(lengths: Ints, limit: int | None) -> tuple[int, int]:
    """How many are 0, and how many lie above a limit."""
    empty = longer = 0
    for first in range(0, len(lengths), BLOCK):
        block = lengths[first : first + BLOCK]
        empty += len(block) - int(np.count_nonzero(block))
        longer += 0 if limit is None else int(np.count_nonzero(block > limit))
    return empty, longer


def longest_of(lengths: Ints, most: int | None) -> int:
    """The first sequence that none is longer than; only those of at most `most` steps count."""
    best, where = -1, 0
    for first in range(0, len(lengths), BLOCK):
        block = lengths[first : first + BLOCK]
        candidates = block if most is None else np.where(block <= most, block, -1)
        place = int(np.argmax(candidates))
        if candidates[place] > best:
            best, where = int(candidates[place]), first + place
    return where


def refuse_longer(lengths: Ints, limit: int, *, said: str) -> None:
    """Refuse sequences of more than `limit` steps.

    Raises:
        LowtideError: There are some: how many, and the longest.
    """
    longer = count_lengths(lengths, limit)[1]
    if longer:
        where = longest_of(lengths, None)
        raise LowtideError(
            what=f"{longer} of {len(lengths)} sequences are longer than {said} allows; the longest, number {where}, "
            f"has {int(lengths[where])} steps",
            why="one of them alone would make a batch larger than what was asked for",
            fix='say what becomes of them: over_length="split" for several parts each, over_length="drop" to leave '
            "them out, or max_length= with cut= to use a part of each",
        )


_CROPS = 0x63726F70
"""Keeps the random crops apart from what else is drawn with the same seed and epoch."""
