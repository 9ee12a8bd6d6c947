"""What an interrupted writer left is gone on with where it is whole, and is never taken for a store."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Store, StoreWriter
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, assert_holds, begin_and_die, sequences, write

LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=25)


@given(lengths=LENGTHS, died=st.integers(0, 25), shard_bytes=st.sampled_from([256, 700, 2048]))
def test_an_interrupted_writer_is_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], died: int, shard_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences(lengths)
    begin_and_die(path, made[:died], shard_bytes=shard_bytes, request={"source": "a.csv"})
    with pytest.raises(LowtideError, match="only an ingest that did not end"):
        Store(path)
    with StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, request={"source": "a.csv"}) as writer:
        done = writer.sequences
        assert done <= died
        for name, arrays in made[done:]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(path), made)
    Store(path).verify()
    shutil.rmtree(path)


def test_whole_shards_are_not_written_again(tmp_path: Path) -> None:
    made = sequences([20] * 50)
    begin_and_die(tmp_path / "a", made, shard_bytes=1024, request={"n": 1})
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences >= 45


@pytest.mark.parametrize("request_", [None, {"n": 2}])
def test_another_request_begins_anew_and_cleans_up(tmp_path: Path, request_: dict[str, object] | None) -> None:
    begin_and_die(tmp_path / "a", sequences([20] * 50), shard_bytes=1024, request={"n": 1})
    made = sequences([4, 5])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request=request_) as writer:
        assert writer.sequences == 0
        for name, arrays in made:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]


def test_what_an_interrupted_writer_left_besides_is_not_taken_over(tmp_path: Path) -> None:
    made = sequences([20] * 50)
    begin_and_die(tmp_path / "a", made, shard_bytes=1024, request={"n": 1})
    (building,) = (tmp_path / "a").glob(".building-*")
    (building / "splits.npy").write_bytes(b"of another run")
    (building / "scratch").mkdir()
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        for name, arrays in made[writer.sequences :]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
    assert {path.name for path in (tmp_path / "a" / "v0001").iterdir()} == {
        *(entry.name for entry in Store(tmp_path / "a").manifest.files),
        "manifest.json",
    }


def test_progress_whose_files_were_lost_is_not_gone_on_with(tmp_path: Path) -> None:
    begin_and_die(tmp_path / "a", sequences([20] * 50), shard_bytes=1024, request={"n": 1})
    (building,) = (tmp_path / "a").glob(".building-*")
    (building / "shard-00001.arrow").write_bytes(b"torn")
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences == 0


@given(place=st.integers(0, 400), change=st.integers(1, 255))
def test_progress_that_a_disk_has_changed_is_not_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "store"
    begin_and_die(path, sequences([20] * 10), shard_bytes=1024, request={"n": 1})
    (progress,) = path.glob(".building-*/progress.json")
    noted = bytearray(progress.read_bytes())
    noted[place % len(noted)] ^= change
    progress.write_bytes(noted)
    with StoreWriter(path, SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences == 0
    shutil.rmtree(path, ignore_errors=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from lowtide.data import StoreWriter
from tests.data.store_cases import SCHEMA, sequences
with StoreWriter(Path(sys.argv[1]), SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
    for name, arrays in sequences([20] * 50):
        writer.add(name, arrays)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_lock_and_no_store(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    assert done.returncode != 0
    with pytest.raises(LowtideError, match="only an ingest that did not end"):
        Store(tmp_path / "a")
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request={"n": 1}) as writer:
        assert writer.sequences >= 45


def test_an_interrupted_append_is_gone_on_with(tmp_path: Path) -> None:
    made = sequences([20] * 60)
    write(tmp_path / "a", made[:10])
    request: dict[str, object] = {"n": 1}
    begin_and_die(tmp_path / "a", made[10:50], shard_bytes=1024, request=request, append=True)
    assert_holds(Store(tmp_path / "a"), made[:10])
    with StoreWriter(tmp_path / "a", SCHEMA, shard_bytes=1024, request=request, append=True) as writer:
        assert writer.sequences > 30
        for name, arrays in made[10 + writer.sequences :]:
            writer.add(name, arrays)
        writer.commit()
    assert_holds(Store(tmp_path / "a"), made)
