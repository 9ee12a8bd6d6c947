"""A hash of sequences' names that is the same on every machine, for splits that appended data never move.

Names that are numbers go through splitmix64 (Steele, Lea and Flood 2014). Names that are text are hashed by simple
tabulation: every (position, byte) has a random word of its own, made by splitmix64 rather than looked up, and a name's
hash is their exclusive or. That is 3-independent (Patrascu and Thorup 2012, "The Power of Simple Tabulation Hashing"),
where sums over runs of similar names ("user-0001", "user-0002") are what matters, and it needs no loop over names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_BLOCK = 1 << 18
"""Bytes of names hashed at once: words of 8 bytes for each of them are in memory."""
_WORDS = 1 << 64


def hash_ids(ids: pa.Array | NDArray[Any], seed: int) -> Hashes:
    """Hash names, each by itself.

    Args:
        ids: Text or whole numbers, without nulls.
        seed: Another seed, another and independent hash.

    Returns:
        Numbers that are spread evenly over all of uint64.
    """
    key = _mixed(np.array([seed % _WORDS], dtype=np.uint64))
    array = pa.array(ids) if isinstance(ids, np.ndarray) else ids
    assert array.null_count == 0
    if pa.types.is_integer(array.type):
        numbers = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return _mixed(numbers.view(np.uint64) ^ key)
    return _hash_text(array.cast(pa.large_string()), key)


def _hash_text(names: pa.Array, key: Hashes) -> Hashes:
    _, offset_buffer, byte_buffer = names.buffers()
    hashes = np.empty(len(names), dtype=np.uint64)
    if len(names) == 0:
        return hashes
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(byte_buffer or b"", dtype=np.uint8)
    first = 0
    while first < len(names):
        last = int(np.searchsorted(offsets, offsets[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), len(names))
        hashes[first:last] = _hash_block(text[offsets[first] : offsets[last]], offsets[first : last + 1], key)
        first = last
    return hashes


def _hash_block(text: NDArray[np.uint8], offsets: NDArray[np.int64], key: Hashes) -> Hashes:
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    position = np.arange(len(text), dtype=np.int64) - np.repeat(starts, lengths)
    words = _mixed((position.astype(np.uint64) << np.uint64(8) | text) ^ key)
    until = np.concatenate([np.zeros(1, dtype=np.uint64), np.bitwise_xor.accumulate(words)])
    return _mixed(until[starts + lengths] ^ until[starts] ^ lengths.astype(np.uint64) ^ key)


def _mixed(numbers: Hashes) -> Hashes:
    """splitmix64 of every number."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
