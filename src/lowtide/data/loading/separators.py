"""Windows that end at separators, such as the ends of sentences.

They lie where the data say. One pass over the field's codes finds them; their ends are kept, 8 bytes a window.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np

from lowtide.data.fields import Field
from lowtide.data.loading.order import Ints
from lowtide.data.loading.passes import pieces_of
from lowtide.data.loading.policy import PolicyReport, Spans, count_lengths
from lowtide.data.loading.windows import Windows, owners
from lowtide.data.view import View
from lowtide.errors import LowtideError


class SeparatedItems:
    """Windows that follow one another, and end at separators wherever one comes in time."""

    def __init__(self, view: View, windows: Windows) -> None:
        """Find the windows, in one pass over the codes.

        Raises:
            LowtideError: There are no codes to look for separators in, or the separators are none of them.
        """
        field = _field_of_codes(view, windows)
        codes = _codes(view, windows, field)
        self._counts = np.zeros(len(view), np.int64)
        stops = array("q")
        for row, found in groupby(_separators(view, field, codes), key=lambda one: one[0]):
            ends = window_ends((places for _, places in found), int(view.lengths[row]), windows.size)
            self._counts[row] = len(ends)
            stops.extend(ends)
        self._last = np.cumsum(self._counts)
        self._stops = np.frombuffer(stops, np.int64) if stops else np.empty(0, np.int64)
        self.count = len(self._stops)
        self.report = PolicyReport(len(view), self.count, empty=count_lengths(view.lengths, None)[0])

    def lengths(self, items: Ints) -> Ints:
        """Steps of each."""
        return self.spans(items, 0).lengths

    def spans(self, items: Ints, epoch: int) -> Spans:  # noqa: ARG002 - windows do not move
        """Where they lie."""
        sequences = owners(self._last, items)
        first = items == self._last[sequences] - self._counts[sequences]
        return Spans(sequences, np.where(first, 0, self._stops[items - 1]), self._stops[items])

    def longest(self) -> int:
        """An item that none is longer than."""
        return int(np.argmax(self.lengths(np.arange(self.count)))) if self.count else 0

    def parts(self, sequences: Ints) -> Ints:
        """How many windows each of these sequences has."""
        return self._counts[sequences]


def window_ends(separators: Iterable[Ints], length: int, size: int) -> list[int]:
    """Where the windows of one sequence end: each takes as many whole pieces as it has room for.

    Args:
        separators: The places of separators, rising, some at a time.
        length: Steps of the sequence.
        size: Steps of a window, at most.
    """
    ends: list[int] = []
    start = reach = 0  # where the open window starts, and the end of the last piece that fits into it

    def close_until(end: int) -> None:
        nonlocal start
        while end - start > size:
            start = reach if reach > start else start + size
            ends.append(start)

    for places in separators:
        for end in (places + 1).tolist():
            close_until(end)
            reach = end
    close_until(length)
    return [*ends, length] if length > start else ends


def _separators(view: View, field: Field, codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Sequences, and places of separators in them; a long sequence comes several times, and one without steps not."""
    for rows, starts, stops in pieces_of(view.lengths):
        values, offsets = view.read(field.name, rows, starts, stops)
        places = np.flatnonzero(np.isin(values, codes))
        cuts = np.searchsorted(places, offsets)
        for number, row in enumerate(rows.tolist()):
            yield row, places[cuts[number] : cuts[number + 1]] + (starts[number] - offsets[number])


def _field_of_codes(view: View, windows: Windows) -> Field:
    known = [field for field in view.schema.per_step if not field.width and np.issubdtype(field.storage, np.integer)]
    known = [field for field in known if field.dtype != "bfloat16"]
    wanted = [field for field in known if windows.field in {field.name, None}]
    inputs = [field for field in wanted if field.role == "inputs"]
    chosen = inputs if windows.field is None else wanted
    if len(chosen) != 1:
        asked = "no field was named" if windows.field is None else f"{windows.field!r} was named"
        raise LowtideError(
            what=f"windows end at separators, and {asked} where {[field.name for field in known]} are fields of codes",
            why="separators are codes of one field with one whole number per step",
            fix="name the field: Windows(..., separator=..., field=...)",
        )
    return chosen[0]


def _codes(view: View, windows: Windows, field: Field) -> Ints:
    asked = windows.separator
    separators = [asked] if isinstance(asked, int | str) else list(asked or [])
    words = [one for one in separators if isinstance(one, str)]
    known: dict[str, int] = {}
    if words and field.vocabulary is not None:
        known = {word: code for code, word in enumerate(view.store.vocabulary(field.vocabulary))}
    missing = [word for word in words if word not in known]
    if missing or not separators:
        raise LowtideError(
            what=f"separator={asked!r}: " + (f"{missing} are not in the field's vocabulary" if missing else "none"),
            why=f"separators are codes of the field {field.name!r}, or entries of its vocabulary",
            fix="give codes as whole numbers, or entries of store.vocabulary(...)",
        )
    return np.asarray([known[one] if isinstance(one, str) else one for one in separators], np.int64)
