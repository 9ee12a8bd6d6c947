"""What the loss of each row, or of each step, is multiplied by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowtide.data.fields import Array, Field
from lowtide.data.loading.order import Ints
from lowtide.data.loading.passes import STEPS, rows_of, steps_of
from lowtide.data.loading.policy import Items, Spans
from lowtide.data.view import View
from lowtide.errors import LowtideError

Weights = NDArray[np.float64]


class Weighting(Protocol):
    """Weights of the rows of a batch."""

    per_step: bool
    """Whether there is one a step: those of all rows one behind the other; else one a row."""

    def __call__(self, spans: Spans) -> Weights:
        """The weights of these rows, whose sequences are all there."""


class SequenceWeights:
    """One weight a sequence, as the user gives them, or as a field of the store holds them."""

    per_step = False

    def __init__(self, view: View, weights: ArrayLike | str) -> None:
        """Take one finite weight of at least 0 for each sequence, or the name of a field per sequence.

        Raises:
            LowtideError: They are not that.
        """
        self._view = view
        self._field = weights if isinstance(weights, str) else None
        self._table = np.zeros(0) if isinstance(weights, str) else np.asarray(weights, np.float64)
        if self._field is None:
            if self._table.shape != (len(view),):
                raise _refused(
                    f"weights of shape {self._table.shape} for {len(view)} sequences", "give one for each sequence"
                )
            _check(self._table, "weights")
        elif not _is_scalar(field := view.schema.field(self._field)) or field.per != "sequence":
            raise _refused(f"weights={weights!r}, which is not one number per sequence", "name a field that is")

    def __call__(self, spans: Spans) -> Weights:
        """Those of these rows."""
        if self._field is None:
            return self._table[spans.sequence]
        found = self._view.read_static(self._field, spans.sequence).astype(np.float64).reshape(-1)
        return _check(found, f"the field {self._field!r}")


class PartWeights:
    """One over the number of parts that a row's sequence comes in, so that all sequences weigh the same."""

    per_step = False

    def __init__(self, parts: Callable[[Ints], Ints]) -> None:
        """Take what counts the parts of sequences."""
        self._parts = parts

    def __call__(self, spans: Spans) -> Weights:
        """Those of these rows."""
        return 1 / self._parts(spans.sequence)


class ClassBalance:
    """Weights by which every class weighs the same in all: number of labels / (number of classes x its labels).

    Negative labels are none: they are not counted and weigh 0. The labels of all rows are counted, in one pass.
    """

    def __init__(self, view: View, name: str, items: Items, *, last: bool, together: bool = False) -> None:
        """Count the classes of a field of labels.

        Args:
            view: What is loaded from.
            name: The field.
            items: The rows that are loaded: what is left out or cut away has no part in the balance.
            last: Whether a row's label is that of its last step.
            together: Whether all rows of a sequence weigh as much as one.

        Raises:
            LowtideError: It holds no labels.
        """
        self._view = view
        self._field = view.schema.field(name)
        if not _is_scalar(self._field) or not np.issubdtype(self._field.storage, np.integer):
            raise _refused(f"balance={name!r}, a field of {self._field.dtype}", "name a field of one label")
        self._last = last and self._field.per == "step"
        self.per_step = self._field.per == "step" and not last
        self.classes, self.counts = self._count(items, together=together)
        if not len(self.classes):
            raise _refused(f"balance={name!r}, a field without a label of 0 or above", "name a field of labels")

    def __call__(self, spans: Spans) -> Weights:
        """Those of these rows, or of all their steps."""
        labels = self._labels(spans)
        place = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
        weights = self.counts.sum() / (len(self.classes) * self.counts[place])
        return np.where(self.classes[place] == labels, weights, 0)

    def _labels(self, spans: Spans) -> Array:
        name = self._field.name
        if self._field.per == "sequence":
            return self._view.read_static(name, spans.sequence).reshape(-1)
        start = spans.stop - 1 if self._last else spans.start
        return self._view.read(name, spans.sequence, start, spans.stop)[0].reshape(-1)

    def _count(self, items: Items, *, together: bool) -> tuple[Ints, Ints]:
        found: dict[int, int] = {}
        for labels, times in self._all_labels(items, together=together):
            classes, place = np.unique(labels, return_inverse=True)
            counts = np.bincount(place.reshape(-1), times).astype(np.int64)
            for one, count in zip(classes.tolist(), counts.tolist(), strict=True):
                found[one] = found.get(one, 0) + count
        told = sorted((one, count) for one, count in found.items() if one >= 0 and count)
        table = np.asarray(told, np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _all_labels(self, items: Items, *, together: bool) -> Iterator[tuple[Array, Ints | None]]:
        """Labels, and how many times each counts; None: once."""
        if self._field.per == "step":
            for spans in rows_of(items) if self._last else steps_of(items):
                yield self._labels(spans), None
            return
        for first in range(0, len(self._view), STEPS):
            sequences = np.arange(first, min(first + STEPS, len(self._view)))
            parts = items.parts(sequences)
            labels = self._view.read_static(self._field.name, sequences).reshape(-1)
            yield labels, np.minimum(parts, 1) if together else parts


def product(weightings: Sequence[Weighting], spans: Spans) -> tuple[Weights, bool]:
    """All weights multiplied, and whether they are one a step."""
    per_step = any(weighting.per_step for weighting in weightings)
    total = np.ones(int(spans.lengths.sum()) if per_step else len(spans))
    for weighting in weightings:
        weights = weighting(spans)
        total *= np.repeat(weights, spans.lengths) if per_step and not weighting.per_step else weights
    return total, per_step


def _is_scalar(field: Field) -> bool:
    return field.width <= 1 and field.dtype != "bfloat16"


def _check(weights: Weights, said: str) -> Weights:
    if not bool((np.isfinite(weights) & (weights >= 0)).all()):
        raise _refused(f"{said} with a value that is negative or not finite", "give finite numbers of at least 0")
    return weights


def _refused(what: str, fix: str) -> LowtideError:
    return LowtideError(what=what, why="each row's loss is multiplied by its weight", fix=fix)
