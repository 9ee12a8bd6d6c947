"""Rows are found in the shards that hold them, and a shard that is not the manifest's is refused before it is used."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lowtide.data import Schema, Store
from lowtide.data.disk.manifest import FileEntry, ShardEntry
from lowtide.data.disk.shards import Rows, Shard, check_files
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, sequences, write

MADE = sequences([5, 0, 90, 12, 40, 7])
NOWHERE = FileEntry("v0001", "shard-00000.arrow", 0, "0" * 64)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write(tmp_path_factory.mktemp("shards") / "store", MADE, shard_bytes=700)


def rows_of(store: Store) -> Rows:
    return Rows(store.path, store.manifest.shards, store.schema)


def test_every_row_is_found_by_itself_and_among_many(store: Store) -> None:
    rows = rows_of(store)
    assert len(rows) == store.manifest.rows > len(MADE)
    assert rows.batches > 3
    batches, local = rows.locate_all(np.arange(len(rows)))
    for row in range(len(rows)):
        columns, place = rows.locate(row)
        assert columns is rows.batch(int(batches[row]))
        assert place == local[row]
    steps = np.concatenate([rows.piece("x", row) for row in range(len(rows))])
    np.testing.assert_array_equal(steps, np.concatenate([arrays["x"] for _, arrays in MADE]))


def test_values_are_missing_where_a_row_is_continued(store: Store) -> None:
    rows = rows_of(store)
    missing = np.concatenate([rows.batch(number).missing for number in range(rows.batches)])
    assert (np.flatnonzero(missing) + 1).tolist() == store.manifest.continued_rows.tolist()


def other_rows(entry: ShardEntry) -> ShardEntry:
    return replace(entry, batches=(entry.batches[0] + 1, *entry.batches[1:]))


def more_batches(entry: ShardEntry) -> ShardEntry:
    return replace(entry, batches=(*entry.batches, 1))


def other_size(entry: ShardEntry) -> ShardEntry:
    return replace(entry, file=replace(entry.file, bytes=entry.file.bytes + 1))


def no_file(entry: ShardEntry) -> ShardEntry:
    return replace(entry, file=replace(entry.file, name="shard-99999.arrow"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_rows, "batch 0 has . rows, not"),
        (more_batches, "batches, not"),
        (other_size, "bytes, and the manifest says"),
        (no_file, "no such plain file"),
    ],
)
def test_a_shard_that_is_not_as_it_is_described_is_refused(
    store: Store, change: Callable[[ShardEntry], ShardEntry], said: str
) -> None:
    entry = change(store.manifest.shards[0])
    with pytest.raises(LowtideError, match=f"is damaged: .*{said}"):
        Shard(store.path / entry.file.path, entry, store.schema).batch(0)


def test_columns_of_another_schema_are_refused(store: Store) -> None:
    entry = store.manifest.shards[0]
    other = Schema(SCHEMA.fields[:2], "string")
    with pytest.raises(LowtideError, match="its columns are not those of the manifest"):
        Shard(store.path / entry.file.path, entry, other).batch(0)


def test_missing_steps_are_refused(tmp_path: Path) -> None:
    schema = Schema((SCHEMA.field("code"),), "int64")
    rows = pa.record_batch([pa.array([1, 2]), pa.array([[3], None], pa.large_list(pa.int16()))], schema=schema.arrow)
    with pa.OSFile(str(tmp_path / "a"), "wb") as file, pa.ipc.new_file(file, schema.arrow) as writer:
        writer.write_batch(rows)
    size = (tmp_path / "a").stat().st_size
    entry = ShardEntry(replace(NOWHERE, bytes=size), (2,))
    with pytest.raises(LowtideError, match="'code' has missing values"):
        Shard(tmp_path / "a", entry, schema).batch(0).steps("code")


def test_a_shard_that_cannot_be_read_is_not_called_damaged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    entry = store.manifest.shards[0]
    monkeypatch.setattr(pa, "memory_map", refuse)
    with pytest.raises(LowtideError, match="cannot be read: Too many open files"):
        Shard(store.path / entry.file.path, entry, SCHEMA).batch(0)


def test_files_are_looked_for_in_the_stores_own_folders(store: Store, tmp_path: Path) -> None:
    files = store.manifest.files
    check_files(store.path, files)
    shutil.copytree(store.path, tmp_path / "a")
    (tmp_path / "a" / "v0001").rename(tmp_path / "elsewhere")
    (tmp_path / "a" / "v0001").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LowtideError, match="it is a link"):
        check_files(tmp_path / "a", files)
    with pytest.raises(LowtideError, match="no such plain file"):
        check_files(tmp_path, files)
