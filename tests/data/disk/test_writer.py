"""Nothing half-made is ever a store: what is committed is there whole, and what was there before stays until then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, arrow_rows, assert_holds, file_entries, sequences, write

LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=25)
SHARDS = st.sampled_from([256, 700, 4096, 1 << 20])


def test_the_writer_does_not_keep_what_it_was_given(tmp_path: Path) -> None:
    (name, arrays) = sequences([50])[0]
    reused = {key: array.copy() for key, array in arrays.items()}
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        writer.add(name, reused)
        for array in reused.values():
            array[...] = 0
        writer.commit()
    assert_holds(Store(tmp_path / "a"), [(name, arrays)])


def test_the_same_sequences_make_the_same_bytes(tmp_path: Path) -> None:
    made = sequences([5, 0, 700, 3])
    one, two = write(tmp_path / "a", made, shard_bytes=4096), write(tmp_path / "b", made, shard_bytes=4096)
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != write(tmp_path / "c", made[::-1], shard_bytes=4096).fingerprint


def test_any_arrow_tool_reads_the_shards(tmp_path: Path) -> None:
    made = sequences([4, 2])
    write(tmp_path / "a", made)
    with pa.ipc.open_file(tmp_path / "a" / "v0001" / "shard-00000.arrow") as file:
        table = file.read_all()
    assert table.schema.names == ["id", "x", "code", "y", "label", "place"]
    assert table.schema.field("y").metadata == {b"lowtide.dtype": b"bfloat16"}
    assert table.to_pylist() == arrow_rows(made).to_pylist()
    table.validate(full=True)


@pytest.mark.skipif(sys.platform != "linux", reason="what a descriptor is open on is told by /proc")
def test_all_that_a_manifest_names_is_synced_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    synced: list[str] = []
    before: set[str] = set()

    def sync(descriptor: int) -> None:
        if (path / "manifest.json").exists() and not before:
            before.update(synced)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", sync)
    write(path, sequences([50, 3, 50]), shard_bytes=512, documents={"a": "text"}, vocabularies={"b": ["c"]})
    named = {Path(str(entry["path"])).name for entry in file_entries(json.loads((path / "manifest.json").read_bytes()))}
    assert named | {"a", next(name for name in before if name.startswith(".building"))} <= before
    assert synced[-2:] == ["a", tmp_path.name]


def test_a_shard_of_a_few_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="shard_bytes is 1"):
        StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1)


# --- Never a half-made store


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "deep" / "a", SCHEMA) as writer:
        writer.add(*sequences([3])[0])
    assert not (tmp_path / "deep" / "a").exists()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, SCHEMA) as writer:
        writer.add(*sequences([3])[0])
    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_leaves_the_earlier_version(tmp_path: Path) -> None:
    before = sequences([3, 4])
    fingerprint = write(tmp_path / "a", before).fingerprint
    with pytest.raises(LowtideError), StoreWriter(tmp_path / "a", SCHEMA, request={}) as writer:
        writer.add("t", {})
    assert_holds(Store(tmp_path / "a"), before)
    assert Store(tmp_path / "a").fingerprint == fingerprint
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


def test_a_store_without_sequences_is_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match="no sequence was written"):
        writer.commit()
    assert not (tmp_path / "a").exists()


def test_a_folder_with_other_things_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(LowtideError, match=r"holds 'thesis\.tex', and is not a store"), StoreWriter(tmp_path, SCHEMA):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_writer_is_refused_while_the_first_writes(tmp_path: Path) -> None:
    made = sequences([3])
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        with pytest.raises(LowtideError, match="another process writes"), StoreWriter(tmp_path / "a", SCHEMA):
            pass
        writer.add(*made[0])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)


FULL = """
import resource, sys
from pathlib import Path
from lowtide.errors import LowtideError
from tests.data.store_cases import sequences, write
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    write(Path(sys.argv[1]), sequences([500] * 20, seed=1), shard_bytes=1 << 16)
except LowtideError as error:
    print(error.what, error.fix)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.parametrize("limit", [0, 100, 5000, 60_000])
def test_a_file_that_cannot_grow_is_an_error_and_leaves_the_earlier_version(tmp_path: Path, limit: int) -> None:
    before = sequences([3, 4])
    write(tmp_path / "a", before)
    command = [sys.executable, "-c", FULL, str(tmp_path / "a"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert "free some disk" in done.stdout
    assert_holds(Store(tmp_path / "a"), before)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


def test_scratch_goes_with_the_writer(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer:
        (writer.scratch / "sorted.tmp").write_bytes(b"x")
        writer.add(*sequences([1])[0])
        writer.commit()
    assert not list((tmp_path / "a").rglob("*.tmp"))


# --- Appending


@given(lengths=LENGTHS, more=LENGTHS, shard_bytes=SHARDS)
def test_appended_sequences_come_after_those_that_were_there(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], more: list[int], shard_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made, appended = sequences(lengths), sequences(more, first=len(lengths))
    write(path, made, shard_bytes=shard_bytes)
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, append=True) as writer:
        for name, arrays in appended:
            writer.add(name, arrays)
        assert_holds(Store(path), made)
        writer.commit()
    assert_holds(Store(path), made + appended)
    Store(path).verify()
    shutil.rmtree(path)


def test_appending_other_fields_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", sequences([3]))
    other = Schema((Field("x", "inputs", "step", "float32", 2),), "string")
    with pytest.raises(LowtideError, match="to append"), StoreWriter(tmp_path / "a", other, append=True):
        pass


def test_appending_to_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="not a store"), StoreWriter(tmp_path / "a", SCHEMA, append=True):
        pass
    assert not (tmp_path / "a").exists()


def test_what_was_written_can_be_read_before_it_is_committed(tmp_path: Path) -> None:
    made = sequences([3, 200, 5])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024) as writer:
        for name, arrays in made:
            writer.add(name, arrays)
        assert_holds(writer.written(), made)
        with pytest.raises(LowtideError, match="after the files were ended"):
            writer.add(*made[0])
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
