"""Running codes cut in spans of one size, for language models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lowtide.data.text.batch import TextBatch, TextCounts, numbered


def spans_of(batches: Iterator[TextBatch], size: int, horizon: int, counts: TextCounts) -> Iterator[TextBatch]:
    """Cut every document in spans of `size` codes, each with the `horizon` codes behind it, which are its targets.

    The last span of a document is shorter. A document is never joined to the next.
    """
    cutter = _Cutter(size, horizon, counts)
    for batch in batches:
        made = cutter.cut(batch)
        if len(made.ids):
            yield made


class _Cutter:
    """Holds the end of a document that goes on until what follows has arrived."""

    def __init__(self, size: int, horizon: int, counts: TextCounts) -> None:
        self._size = size
        self._horizon = horizon
        self._counts = counts
        self._waiting: NDArray[Any] = np.empty(0, dtype=np.int64)
        self._number = 1

    def cut(self, batch: TextBatch) -> TextBatch:
        ids: list[pa.Array] = []
        codes: list[NDArray[Any]] = []
        lengths: list[NDArray[np.int64]] = []
        for place, name in enumerate(batch.ids.to_pylist()):
            piece = batch.codes[batch.offsets[place] : batch.offsets[place + 1]]
            if place or not batch.continues:
                self._waiting, self._number = piece[:0], 1
            self._waiting = np.concatenate([self._waiting, piece])
            ends = place + 1 < len(batch.ids) or not batch.goes_on
            for spans in self._whole() if not ends else [*self._whole(), *self._last()]:
                ids.append(numbered(name, self._number, len(spans)))
                codes.append(spans.reshape(-1))
                lengths.append(np.full(len(spans), spans.shape[1], dtype=np.int64))
                self._number += len(spans)
            if ends and self._number == 1:
                self._counts.short += 1
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), *lengths]).cumsum()
        together = pa.concat_arrays(ids) if ids else pa.array([], pa.string())
        return TextBatch(together, np.concatenate([batch.codes[:0], *codes]), offsets)

    def _whole(self) -> list[NDArray[Any]]:
        """The spans of full size, (spans, codes), taken away from what waits."""
        count = max(0, (len(self._waiting) - self._horizon) // self._size)
        if not count:
            return []
        wide = self._size + self._horizon
        spans = sliding_window_view(self._waiting[: count * self._size + self._horizon], wide)[:: self._size]
        self._waiting = self._waiting[count * self._size :]
        return [spans]

    def _last(self) -> list[NDArray[Any]]:
        """What is left at a document's end, where there is anything to predict in it."""
        left = self._waiting
        return [left[np.newaxis]] if len(left) > self._horizon else []
