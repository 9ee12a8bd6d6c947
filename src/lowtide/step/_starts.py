"""The starts of chunks: what arrives there and where the generators stand, kept by the first pass for the second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.nn._carry import Slot, State
from lowtide.step._boundaries import Place, RowLayout, Rows, Schedule, choose_schedule


@dataclass(frozen=True)
class Start:
    """What a chunk begins with."""

    arriving: Mapping[Slot, State]
    generators: list[Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything, in order."""
        return [part for state in self.arriving.values() for part in state] + self.generators


Advance = Callable[[int, Start], Start]
"""From the start of a chunk to that of the next, without gradients."""


class Starts:
    """The starts of `chunks` chunks."""

    def __init__(self, origin: Start, chunks: int, place: Place, folder: Path | None, advance: Advance) -> None:
        """Keep the first one as it is; how the others are kept shows when the second one comes.

        Args:
            origin: The first chunk's.
            chunks: How many there will be.
            place: Where they are to lie.
            folder: For those on disk.
            advance: Computes again what was not kept.
        """
        self._origin = origin
        self._chunks = chunks
        self._place: Place = place
        self._folder = folder
        self._advance = advance
        self._slots: dict[Slot, int] = {}
        """Tensors of each slot."""
        self._layout: RowLayout | None = None
        self._schedule: Schedule | None = None
        self._rows: Rows | None = None
        self._inner: Rows | None = None
        """Rows of one segment, where only segments' starts are kept throughout."""
        self._inner_segment = -1

    def keep(self, number: int, start: Start) -> None:
        """Keep a chunk's start; they come in order, from chunk 1 on."""
        if self._layout is None:
            self._lay_out(start)
        assert self._schedule is not None
        assert self._rows is not None
        segment, place = divmod(number, self._schedule.segment)
        if place == 0:
            self._rows.save(segment, self._checked(start).tensors)

    def get(self, number: int) -> Start:
        """A chunk's start; they are asked for from the last to the first."""
        if number == 0:
            return self._origin
        assert self._schedule is not None
        assert self._rows is not None
        segment, place = divmod(number, self._schedule.segment)
        if place == 0:
            return self._unpacked(self._rows.load(segment))
        if segment != self._inner_segment:
            self._run_segment(segment)
        assert self._inner is not None
        return self._unpacked(self._inner.load(place))

    def _lay_out(self, start: Start) -> None:
        self._slots = {slot: len(state) for slot, state in start.arriving.items()}
        self._layout = RowLayout.of(start.tensors)
        self._schedule = choose_schedule(
            self._place, self._folder, chunks=self._chunks, row_bytes=self._layout.row_bytes
        )
        make = Rows.on_disk if self._schedule.on_disk else Rows.in_memory
        self._rows = make(self._layout, self._schedule.segments, self._folder)
        if self._schedule.segment > 1:
            self._inner = Rows.in_memory(self._layout, self._schedule.segment, self._folder)

    def _run_segment(self, segment: int) -> None:
        assert self._schedule is not None
        assert self._inner is not None
        first = segment * self._schedule.segment
        start = self.get(first)
        for number in range(first, min(first + self._schedule.segment, self._chunks) - 1):
            start = self._advance(number, start)
            self._inner.save(number + 1 - first, self._checked(start).tensors)
        self._inner_segment = segment

    def _unpacked(self, tensors: list[Tensor]) -> Start:
        parts = iter(tensors)
        arriving = {slot: tuple(next(parts) for _ in range(count)) for slot, count in self._slots.items()}
        return Start(arriving, list(parts))

    def _checked(self, start: Start) -> Start:
        """The start, its states in the order of the layout.

        Raises:
            LowtideError: They are others than at the second chunk's start, for which the rows were laid out.
        """
        assert self._layout is not None
        what = "a module left a state of another shape or type than at the first chunk"
        if {slot: len(state) for slot, state in start.arriving.items()} == self._slots:
            ordered = Start({slot: start.arriving[slot] for slot in self._slots}, start.generators)
            if self._layout.fits(ordered.tensors):
                return ordered
        else:
            names = sorted({type(slot.module).__name__ for slot in set(self._slots) ^ set(start.arriving)})
            what = f"other modules left a state than at the first chunk: {', '.join(names)}"
        raise LowtideError(
            what=what,
            why="every chunk takes up what the chunk before left",
            fix="call carry_out once for each carry_in in every forward, with tensors of fixed shapes and types",
        )
