"""Sequences on their way from a source into a store: some at a time, their steps one after the other.

A sequence may be cut where a chunk ends: it goes on in the next one. So a chunk has a bounded size, however long the
sequences are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.fields import Array

Raw: TypeAlias = "Array | list[pa.Array]"
"""A field's values as a source has them: an array, (n,) or (n, features), or its columns."""
Offsets: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True)
class RawChunk:
    """What a source gives."""

    names: pa.Array
    """Of the sequences that have steps here."""
    offsets: Offsets
    """Where each sequence's steps begin, and the end: one more than there are names."""
    steps: Mapping[str, Raw]
    """Values per step, by field."""
    values: Mapping[str, Raw] = field(default_factory=dict)
    """Values per sequence, by field."""
    order: pa.Array | None = None
    """What the steps are ordered by, one a step, where there is such a column."""
    continues: bool = False
    """The first sequence continues the last one of the chunk before."""
    goes_on: bool = False
    """The last sequence goes on in the next chunk."""


@dataclass(frozen=True)
class Chunk:
    """The same with arrays of the stored types (bfloat16 still as float32)."""

    names: pa.Array
    offsets: Offsets
    steps: Mapping[str, Array]
    values: Mapping[str, Array]
    missing: Mapping[str, Mask]
    """Of fields that lack values: where, in the shape of the field's array."""
    order: pa.Array | None
    continues: bool
    goes_on: bool

    @property
    def lengths(self) -> Offsets:
        """The steps that each sequence has here."""
        return np.diff(self.offsets)

    def sequence_of(self, step: int) -> int:
        """The place, in this chunk, of the sequence that a step belongs to."""
        return int(np.searchsorted(self.offsets, step, side="right")) - 1


def offsets_of(lengths: NDArray[np.int64]) -> Offsets:
    """Where each of some sequences begins, and the end."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
