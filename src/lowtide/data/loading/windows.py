"""Windows over sequences, made from their places when a batch wants them: no window is ever stored.

What is kept is one running count a sequence; the window of a number is found in it by bisection. Windows at separators
are in `separators`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lowtide.data.fields import Field
from lowtide.data.loading.numbers import make_plain
from lowtide.data.loading.order import Ints
from lowtide.data.loading.policy import BLOCK, PolicyReport, Spans, count_lengths, longest_of
from lowtide.errors import LowtideError

Label = Literal["inherit", "step", "last"]


@dataclass(frozen=True)
class Windows:
    """How sequences are cut into windows.

    A window starts every `stride` steps and has `size` steps, but for the last of a sequence, which has those that are
    left; a sequence of up to `size` steps is one window. With a `separator`, windows follow one another and end at
    separators: each holds as many whole pieces as fit into `size` steps, and a longer piece is cut at `size`.
    """

    size: int
    """Steps of a window, at most."""
    stride: int | None = None
    """Steps from the start of one to the start of the next; None: `size`, so that they do not overlap."""
    separator: int | str | Sequence[int | str] | None = None
    """The code that ends a piece, such as a full stop; or several; or entries of the field's vocabulary."""
    label: Label | None = None
    """What a window's target is: "inherit" the sequence's, each window weighing one over the number of its sequence's
    windows; "step" the targets of its steps; "last" that of its last step. None: "inherit" where all targets are per
    sequence, else "step"."""
    field: str | None = None
    """The field that holds separators; None: the one input of codes."""

    def __post_init__(self) -> None:
        """Refuse what is no way to cut."""
        make_plain(self, "size", "stride")
        for name, value in (("size", self.size), ("stride", self.stride)):
            if value is not None and (type(value) is not int or value < 1):
                raise _refused(f"{name}={value!r}", "it counts time steps", "give a whole number above 0")
        if self.label is not None and self.label not in get_args(Label):
            raise _refused(
                f"label={self.label!r}", "it says what a window's target is", 'give "inherit", "step", "last"'
            )
        if self.separator is not None and self.stride is not None:
            raise _refused(
                f"stride={self.stride} and separator={self.separator!r}",
                "windows at separators begin where the one before ended",
                "leave one of them out",
            )
        if self.separator is None and self.field is not None:
            raise _refused(f"field={self.field!r}", "it says where separators are, and there are none", "leave it out")

    @property
    def step(self) -> int:
        """Steps from the start of one to the start of the next."""
        return self.size if self.stride is None else self.stride


class WindowItems:
    """Windows of one size over all sequences."""

    def __init__(self, lengths: Ints, size: int, stride: int, *, split: bool = False) -> None:
        """Count the windows of sequences of these lengths.

        Args:
            lengths: Steps of each, which may be mapped from disk.
            size: Steps of a window.
            stride: Steps from one to the next.
            split: Whether windows are only what becomes of sequences longer than allowed, as the report then says.
        """
        self._lengths = np.asarray(lengths)  # still mapped, without the slow ways of a memmap
        self._size = size
        self._stride = stride
        self._ends = np.empty(len(lengths), np.int64)
        for first in range(0, len(lengths), BLOCK):
            self._ends[first : first + BLOCK] = self.parts(slice(first, first + BLOCK))
        np.cumsum(self._ends, out=self._ends)
        self.count = int(self._ends[-1]) if len(lengths) else 0
        empty, longer = count_lengths(lengths, size)
        self.report = PolicyReport(len(lengths), self.count, empty=empty, split=longer if split else 0)

    def lengths(self, items: Ints) -> Ints:
        """Steps of each."""
        return self.spans(items, 0).lengths

    def spans(self, items: Ints, epoch: int) -> Spans:  # noqa: ARG002 - windows do not move
        """Where they lie."""
        sequences = owners(self._ends, items)
        within = items - (self._ends[sequences] - self.parts(sequences))
        start = within * self._stride
        return Spans(sequences, start, np.minimum(start + self._size, self._lengths[sequences]))

    def longest(self) -> int:
        """An item that none is longer than: the first window of the longest sequence."""
        if not self.count:
            return 0
        sequence = np.asarray([longest_of(self._lengths, None)])
        return int((self._ends[sequence] - self.parts(sequence))[0])

    def parts(self, sequences: Ints | slice) -> Ints:
        """How many windows each of these sequences has."""
        lengths = np.asarray(self._lengths[sequences], np.int64)
        # Another window begins where the one before does not reach the end, and there are steps left.
        covered = 1 - (self._size - lengths) // self._stride
        return np.maximum(np.minimum(covered, -(-lengths // self._stride)), np.minimum(lengths, 1))


def owners(ends: Ints, items: Ints) -> Ints:
    """Whose items these are: the first end above each. Sorted first, so that neighbours in memory follow each other."""
    order = np.argsort(items)
    found = np.empty_like(items)
    found[order] = np.searchsorted(ends, items[order], side="right")
    return found


def label_of(asked: Label | None, targets: tuple[Field, ...]) -> Label:
    """The rule for the targets of windows.

    Raises:
        LowtideError: It does not fit them.
    """
    per_step = [field.name for field in targets if field.per == "step"]
    if asked is None:
        return "inherit" if targets and not per_step else "step"
    if (asked == "inherit" and (per_step or not targets)) or (asked == "last" and not per_step):
        raise _refused(
            f"label={asked!r}",
            f"the targets per step are {per_step}, of {[field.name for field in targets]}",
            'use "step" or "last" for targets per step, "inherit" for targets per sequence',
        )
    return asked


def _refused(what: str, why: str, fix: str) -> LowtideError:
    return LowtideError(what=f"Windows({what})", why=why, fix=fix)
