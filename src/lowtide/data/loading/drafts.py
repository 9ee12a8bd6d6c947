"""What the loader is told to make: one draft a batch, in order, and where in that order one is.

Drafts hold numbers of sequences and steps, no data: thousands of them are made in milliseconds, which is why going on
from any place takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lowtide.data.loading.policy import Spans
from lowtide.errors import LowtideError

PositionData = Mapping[str, Any]
"""A position as plain values, that JSON can hold: numbers, lists of them, and dictionaries by name."""


def no_position(position: object) -> LowtideError:
    """The error for a position that was not made by `start` or `after`, or is of other data."""
    return LowtideError(
        what=f"{str(position)[:80]} is no place between batches",
        why="other batches would come than those that the interrupted run would have had",
        fix="give what state_dict() returned, unchanged",
    )


@dataclass(frozen=True)
class Draft:
    """One batch before its data are read."""

    spans: Spans
    steps: int
    """What the batch is padded to."""
    epoch: int
    number: int
    """Of the batch, in its epoch, over all ranks."""
    begins: NDArray[np.bool_] | None = None
    """Rows that begin a new sequence, where others go on with that of the batch before."""


class Drafts(Protocol):
    """The batches of all epochs, as one of several ranks sees them."""

    def start(self, epoch: int) -> PositionData:
        """The position before an epoch's first batch."""

    def after(self, position: PositionData) -> Iterator[tuple[Draft, PositionData]]:
        """The batches from a position to the end of its epoch, each with the position after it."""

    def adopt(self, position: PositionData) -> PositionData:
        """A position that any rank of any number of ranks reported, as a place to go on from here.

        Raises:
            LowtideError: It cannot be gone on from.
        """

    def count(self, epoch: int) -> int:
        """Batches of a whole epoch."""

    def largest(self) -> tuple[int, int]:
        """Sequences and padded steps that no batch of any epoch exceeds, in this combination or in product."""

    def most_rows(self) -> int:
        """Sequences that no batch of any epoch exceeds, however short they are."""


def sizes_of(drafts: Drafts, epoch: int) -> Iterator[tuple[int, int]]:
    """Rows and padded steps of each batch of an epoch."""
    for draft, _ in drafts.after(drafts.start(epoch)):
        yield len(draft.spans), draft.steps
