"""Names of sequences are hashed evenly, one by one, and to the same numbers everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.splitting import id_hash
from lowtide.data.splitting.id_hash import hash_ids

MASK = (1 << 64) - 1


def splitmix64(number: int) -> int:
    """One step, in Python's own whole numbers."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def reference(name: str | int, seed: int) -> int:
    """What the hash is, name by name."""
    key = splitmix64(seed & MASK)
    if isinstance(name, int):
        return splitmix64((name & MASK) ^ key)
    text = name.encode()
    found = 0
    for position, byte in enumerate(text):
        found ^= splitmix64((position << 8 | byte) ^ key)
    return splitmix64(found ^ len(text) ^ key)


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(-5, 1 << 70))
def test_text_is_hashed_as_the_reference_says(names: list[str], seed: int) -> None:
    hashed = hash_ids(pa.array(names, pa.string()), seed)
    assert hashed.tolist() == [reference(name, seed) for name in names]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_numbers_are_hashed_as_the_reference_says(names: list[int]) -> None:
    assert hash_ids(np.array(names, dtype=np.int64), 3).tolist() == [reference(name, 3) for name in names]


def test_a_hash_does_not_depend_on_its_neighbours_nor_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.array(["", "a" * 100, "user-1", "", "user-2", "ü" * 40, ""])
    whole = hash_ids(names, 0)
    monkeypatch.setattr(id_hash, "_BLOCK", 7)
    assert hash_ids(names, 0).tolist() == whole.tolist()
    assert hash_ids(names[2:5], 0).tolist() == whole[2:5].tolist()
    assert hash_ids(names.cast(pa.large_string()), 0).tolist() == whole.tolist()


@pytest.mark.parametrize("made", ["user-{:06d}", "{}", "a/long/path/of/files/{}.csv"])
def test_similar_names_are_spread_evenly(made: str) -> None:
    hashed = hash_ids(pa.array([made.format(number) for number in range(20_000)]), 0)
    counts = np.bincount((hashed >> np.uint64(59)).astype(np.int64), minlength=32)
    # 625 each; a deviation of six standard deviations does not happen by chance
    assert abs(counts - 625).max() < 6 * 625**0.5
    assert len(np.unique(hashed)) == len(hashed)
