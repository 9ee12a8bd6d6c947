"""The texts of the training part, for what is learnt from text: a vocabulary of characters, a tokenizer.

Which sequences, or which of their steps, belong to that part is known only once all have been seen. So a pass by
characters finds their names and lengths, and another gives the text of those that belong to it. In a split by sequence
that is exact. In one along time the cut lies at the same share of each text's characters: for tokens of several
characters, near the cut alone, it may lie a few tokens away from that of the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.splitting.rules import Rule
from lowtide.data.splitting.splits import SplitMaker, training_part
from lowtide.data.text.batch import TextBatch
from lowtide.data.text.tokenizing import Characters, Tokenizer

Passes: TypeAlias = "Callable[[Tokenizer], Iterable[TextBatch]]"
"""Begins a pass over all sequences, as codes of a tokenizer."""
Counts: TypeAlias = "NDArray[np.int64]"


def training_texts(
    passes: Passes, characters: Characters, split: Rule | Mapping[str, Any], *, horizon: int
) -> Iterator[list[str]]:
    """The texts of the training part, by the list.

    Args:
        passes: Of the data.
        characters: All that the data have.
        split: The rule of the parts, or what `read_rule` takes for one.
        horizon: How many codes ahead the targets lie: the last ones are targets alone.

    Raises:
        LowtideError: The rule contradicts itself or the data, or a part would stay empty.
    """
    starts, stops = _training_ranges(passes(characters), split, horizon)
    number, before = 0, 0
    for batch in passes(characters):
        if not batch.continues:
            before = 0
        lengths = np.diff(batch.offsets)
        places = slice(number, number + len(lengths))
        seen = np.zeros_like(lengths)
        seen[:1] = before
        first = batch.offsets[:-1] + np.clip(starts[places] - seen, 0, lengths)
        last = batch.offsets[:-1] + np.clip(stops[places] - seen, 0, lengths)
        text = characters.decode(batch.codes)
        yield [text[start:stop] for start, stop in zip(first.tolist(), last.tolist(), strict=True) if start < stop]
        number += len(lengths) - batch.goes_on
        before = int(seen[-1] + lengths[-1]) if batch.goes_on else 0


def _training_ranges(
    batches: Iterable[TextBatch], split: Rule | Mapping[str, Any], horizon: int
) -> tuple[Counts, Counts]:
    """From which code to which each sequence belongs to the training part; nothing: 0 to 0."""
    maker = SplitMaker(split, gap=horizon)
    there = [np.zeros(0, dtype=np.bool_)]
    for names, lengths in _whole(batches):
        steps = lengths - horizon
        kept = steps > 0
        maker.add(names.filter(pa.array(kept)), steps[kept])
        there.append(kept)
    splits = maker.finish()
    part = splits.part(training_part(splits.names))
    numbers = np.flatnonzero(np.concatenate(there))[part.index]
    starts, stops = np.zeros((2, sum(map(len, there))), dtype=np.int64)
    starts[numbers] = 0 if part.start is None else part.start
    stops[numbers] = np.iinfo(np.int64).max if part.stop is None else part.stop + horizon
    return starts, stops


def _whole(batches: Iterable[TextBatch]) -> Iterator[tuple[pa.Array, Counts]]:
    """The names and lengths of all sequences, those that batches cut whole again."""
    before = 0
    for batch in batches:
        lengths = np.diff(batch.offsets)
        lengths[:1] += before if batch.continues else 0
        last = len(lengths) - int(batch.goes_on)
        before = int(lengths[-1]) if batch.goes_on else 0
        yield batch.ids[:last], lengths[:last]
