"""Names are those that were given, whatever part of a store is asked, and however its sequences are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Store
from tests.data.store_cases import sequences, write

LENGTHS = [5, 200, 0, 70, 3, 90]
NAMES = [f"s{number}" for number in range(len(LENGTHS))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Sequences in several pieces among such in one, in many shards."""
    return write(tmp_path_factory.mktemp("ids") / "store", sequences(LENGTHS), shard_bytes=512)


def test_pieces_have_one_name_together(store: Store) -> None:
    assert len(store.manifest.continued_rows) > 5
    assert list(store.ids) == NAMES
    assert [store.ids[number] for number in range(len(NAMES))] == NAMES


@given(st.lists(st.integers(0, len(LENGTHS) - 1), max_size=12), st.slices(12))
def test_a_part_has_the_names_of_its_own_sequences(store: Store, chosen: list[int], cut: slice) -> None:
    ids = store[np.array(chosen, np.int64)].ids
    expected = [NAMES[number] for number in chosen]
    assert len(ids) == len(expected)
    assert list(ids) == expected
    assert ids[cut] == expected[cut]
    assert [name for chunk in ids.chunks() for name in chunk.to_pylist()] == expected


def test_a_name_that_is_not_there_is_an_index_error(store: Store) -> None:
    for number in (6, -7):
        with pytest.raises(IndexError):
            _ = store.ids[number]
