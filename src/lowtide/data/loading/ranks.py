"""The global list of batches, dealt out to ranks in rounds: the same number to each, nothing left out or repeated.

Rank r of R takes batches r, r + R, r + 2R, ... Where the list does not end with a full round, and that is not left out,
the batches of its last rounds are dealt anew: cut into smaller ones until each rank has one. Training that goes on with
another number of ranks deals out what is left of the list: the deals of an epoch, in order, say how its list ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from lowtide.data.loading.order import Ints
from lowtide.errors import LowtideError


@dataclass(frozen=True)
class Deal:
    """From which batch on the list is dealt to how many ranks."""

    at: int
    ranks: int


def check_rank(rank: int, ranks: int) -> None:
    """Refuse a rank that there is not.

    Raises:
        LowtideError: `rank` is none of 0 to `ranks` - 1.
    """
    if type(rank) is not int or type(ranks) is not int or not 0 <= rank < ranks:
        raise LowtideError(
            what=f"rank={rank!r} of ranks={ranks!r}",
            why="batches are dealt to ranks 0 to ranks - 1",
            fix="give rank=torch.distributed.get_rank() and ranks=torch.distributed.get_world_size()",
        )


def dealt_end(batches: list[Ints], before: int, deals: Sequence[Deal]) -> list[Ints]:
    """The last batches of a list, so that the rounds of every deal come out even.

    Args:
        batches: Items of each batch.
        before: Batches of the list that come before these.
        deals: In order; of each but the last, what was dealt before the next stays as it was.
    """
    for deal in deals:
        settled = max(0, deal.at - before)
        missing = -(before + len(batches) - deal.at) % deal.ranks
        if missing:
            batches = batches[:settled] + _cut_anew(batches[settled:], missing, deal.ranks)
    return batches


def rounds_of(batches: int, ranks: int, *, whole_only: bool) -> int:
    """How many rounds a whole list makes."""
    return batches // ranks if whole_only else -(-batches // ranks)


def _cut_anew(batches: list[Ints], missing: int, ranks: int) -> list[Ints]:
    """Cut the last of these batches so that there are `missing` more.

    Those of the round that is not full, and as many before it as it takes to have an item for each. Where there are not
    so many items at all, the last ranks are given batches without any.
    """
    together = np.cumsum([len(batch) for batch in reversed(batches)])
    tails = np.arange(min(ranks - missing, len(batches)), len(batches) + 1)
    enough = tails[together[tails - 1] >= tails + missing]
    tail = int(enough[0]) if enough.size else len(batches)
    kept, cut = batches[: len(batches) - tail], batches[len(batches) - tail :]
    pieces = [
        piece for batch, count in zip(cut, _shares(cut, missing), strict=True) for piece in np.array_split(batch, count)
    ]
    empty = [np.empty(0, np.int64)] * (tail + missing - len(pieces))
    return kept + pieces + empty


def _shares(batches: list[Ints], more: int) -> list[int]:
    """Into how many pieces to cut each batch: `more` than there are, or one an item where items are too few."""
    shares = [1] * len(batches)
    heap = [(-len(batch), place) for place, batch in enumerate(batches)]
    heapify(heap)
    for _ in range(more):
        largest, place = heap[0]
        if largest > -2:  # noqa: PLR2004 - what holds one item is not cut
            break
        shares[place] += 1
        heapreplace(heap, (-len(batches[place]) // shares[place], place))
    return shares
