"""Sequences come back whichever way they were given, cut into pieces only where they must be, in bounded memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.fields import Array
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, STEP_BYTES, arrow_rows, assert_holds, give, sequences, write

LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=25)
SHARDS = st.sampled_from([256, 700, 4096, 1 << 20])
WAYS = st.lists(st.sampled_from(["add", "rows", "bits"]), min_size=1, max_size=4)


@given(lengths=LENGTHS, shard_bytes=SHARDS, ways=WAYS, pieces=st.integers(1, 5))
def test_sequences_come_back_however_they_were_given(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], shard_bytes: int, ways: list[str], pieces: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences(lengths)
    groups = [made[start : start + 3] for start in range(0, len(made), 3)]
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes) as writer:
        for number, group in enumerate(groups):
            give(writer, group, ways[number % len(ways)], pieces)
        assert writer.sequences == len(made)
        writer.commit()
    store = Store(path)
    assert_holds(store, made)
    store.verify()
    shutil.rmtree(path)


def test_only_a_sequence_larger_than_a_shard_lies_in_pieces(tmp_path: Path) -> None:
    made = sequences([5, 1000, 100, 3])
    store = write(tmp_path / "a", made, shard_bytes=100 * STEP_BYTES)
    assert store.manifest.continued_rows.tolist() == list(range(2, 11))
    assert store.manifest.rows == len(made) + 9
    sizes = [entry.file.bytes for entry in store.manifest.shards]
    assert len(sizes) == 13
    assert max(sizes) < 100 * STEP_BYTES + 2500  # what Arrow writes around it
    assert len(write(tmp_path / "b", made).manifest.shards) == 1


def test_many_short_sequences_share_a_record_batch(tmp_path: Path) -> None:
    store = write(tmp_path / "a", sequences([2] * 500))
    assert [entry.batches for entry in store.manifest.shards] == [(500,)]


def test_what_is_added_bit_by_bit_takes_the_memory_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.disk.row_stream._BATCH_BYTES", 50 * STEP_BYTES)
    (name, arrays) = sequences([1000])[0]
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        give(writer, [(name, arrays)], "bits", 77)
        writer.commit()
    store = Store(tmp_path / "a")
    assert [entry.batches for entry in store.manifest.shards] == [(1,) * 20]
    assert_holds(store, [(name, arrays)])


def test_wide_values_per_sequence_take_the_memory_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.disk.row_stream._BATCH_BYTES", 50_000)
    schema = Schema((SCHEMA.field("code"), Field("image", "static", "sequence", "float32", 1000)), "int64")
    made: list[dict[str, Array]] = [
        {"code": np.arange(2, dtype=np.int16), "image": np.full(1000, k, np.float32)} for k in range(30)
    ]
    with StoreWriter(tmp_path / "a", schema) as writer:
        for number, arrays in enumerate(made):
            writer.add(number, arrays)
        writer.commit()
    store = Store(tmp_path / "a")
    assert [entry.batches for entry in store.manifest.shards] == [(12, 12, 6)]
    np.testing.assert_array_equal(store.read_static("image", np.arange(30))[:, 7], np.arange(30))


@pytest.mark.parametrize("way", ["add", "rows", "bits"])
def test_pieces_of_a_long_sequence_say_whose_they_are_to_any_arrow_tool(tmp_path: Path, way: str) -> None:
    made = sequences([3, 40, 2], first=1)
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=20 * STEP_BYTES) as writer:
        give(writer, made, way, 7)
        writer.commit()
    tables = [pa.ipc.open_file(path).read_all() for path in sorted((tmp_path / "a" / "v0001").glob("*.arrow"))]
    rows = pa.concat_tables(tables).select(["id", "label", "place"]).to_pylist()
    assert [(row["id"], row["label"]) for row in rows] == [("s1", 7), ("s2", None), ("s2", 14), ("s3", 21)]
    assert [row["place"] is None for row in rows] == [False, True, False, False]


def test_rows_that_are_a_slice_of_others_are_read_from_where_they_begin(tmp_path: Path) -> None:
    made = sequences([3, 5, 0, 2])
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        writer.add_rows(arrow_rows(made)[1:3])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made[1:3])


def test_calls_in_a_wrong_order_are_refused(tmp_path: Path) -> None:
    (name, arrays) = sequences([1])[0]
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        with pytest.raises(LowtideError, match="none was begun"):
            writer.end()
        writer.begin(name)
        with pytest.raises(LowtideError, match="begun and not ended"):
            writer.add(name, arrays)
        with pytest.raises(LowtideError, match="begun and not ended"):
            writer.commit()
