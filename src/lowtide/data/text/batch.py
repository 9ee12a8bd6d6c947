"""Sequences of codes on their way from text files into a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.text.decoding import DecodingCounts


@dataclass(frozen=True)
class TextBatch:
    """Sequences of codes, one after the other."""

    ids: pa.Array
    """file:line, file:document, file:span; or file, where it is one document."""
    codes: NDArray[Any]
    offsets: NDArray[np.int64]
    """Where each sequence begins, and the end: one more than there are sequences."""
    continues: bool = False
    """The first sequence continues the last one of the batch before."""
    goes_on: bool = False
    """The last sequence goes on in the next batch."""


@dataclass
class TextCounts(DecodingCounts):
    """What was read so far, and what became of it."""

    sequences: int = 0
    codes: int = 0
    blank: int = 0
    """Texts of nothing but white space, or without a code, dropped or kept as asked."""
    short: int = 0
    """Documents left out of spans, since no code of them has the one that is to be predicted."""
    unknown: int = 0
    """Characters or words that the vocabulary does not have."""


def numbered(name: str, first: int, count: int) -> pa.Array:
    """The ids of consecutive sequences of a file: its name and their numbers."""
    numbers = pc.cast(pa.array(np.arange(first, first + count)), pa.string())
    return pc.binary_join_element_wise(pa.scalar(name), numbers, ":")
