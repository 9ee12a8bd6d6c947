"""A reader keeps the version that it opened, whatever is written meanwhile, and nothing is kept that nobody reads."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.data import Store, StoreWriter
from lowtide.data.disk import versions
from lowtide.data.disk.files import write_beside
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, assert_holds, sequences, write


def folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def test_a_reader_keeps_its_version_however_often_the_store_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    made = [sequences([200, number + 1], seed=number) for number in range(5)]
    first = write(path, made[0], shard_bytes=1024)
    for content in made[1:]:
        assert_holds(write(path, content, shard_bytes=1024), content)
    assert folders(path) == ["v0001", "v0004", "v0005"]
    assert_holds(first, made[0])
    first.verify()


def test_versions_that_nobody_reads_are_removed_but_for_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for number in range(4):
        write(path, sequences([number + 1]))
        gc.collect()
    assert folders(path) == ["v0003", "v0004"]


def test_an_append_keeps_the_folders_that_it_goes_on_from(tmp_path: Path) -> None:
    path = tmp_path / "a"
    made = sequences([3, 4, 5, 6])
    write(path, made[:1])
    for number in range(1, 4):
        with StoreWriter(path, SCHEMA, append=True) as writer:
            writer.add(*made[number])
            writer.commit()
    assert_holds(Store(path), made)
    assert folders(path) == ["v0001", "v0002", "v0003", "v0004"]
    assert Store(path).manifest.lengths.folder == "v0004"
    write(path, made)
    write(path, made)
    assert folders(path) == ["v0005", "v0006"]


HOLD = """
import sys
from pathlib import Path
from lowtide.data import Store
store = Store(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
print(len(store), float(store[0].inputs["x"].sum()) == float(sys.argv[2]))
"""


def test_a_reader_in_another_process_keeps_its_version_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = sequences([50])
    write(path, content)
    gc.collect()
    command = [sys.executable, "-c", HOLD, str(path), str(float(content[0][1]["x"].sum()))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        for number in range(3):
            write(path, sequences([number + 1]))
        gc.collect()
        assert "v0001" in folders(path)
        out, _ = reader.communicate("go on\n")
    assert out == "1 True\n"
    write(path, sequences([1]))
    assert "v0001" not in folders(path)


def test_a_pickled_store_is_that_version_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = sequences([3, 4])
    store = write(path, content)
    pickled = pickle.dumps(store)
    write(path, sequences([9]))
    assert_holds(pickle.loads(pickled), content)  # noqa: S301 - made here
    del store
    gc.collect()
    write(path, sequences([8]))
    with pytest.raises(LowtideError, match=r"version 1 .* not there any more"):
        pickle.loads(pickled)  # noqa: S301 - made here


def test_a_pickled_store_is_not_another_one_in_the_same_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pickled = pickle.dumps(write(path, sequences([3, 4])))
    shutil.rmtree(path)
    write(path, sequences([5]))
    with pytest.raises(LowtideError, match="not there any more"):
        pickle.loads(pickled)  # noqa: S301 - made here


def test_a_pickled_store_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = sequences([3])
    write(tmp_path / "a", content)
    pickled = pickle.dumps(Store("a"))
    monkeypatch.chdir("/")
    assert_holds(pickle.loads(pickled), content)  # noqa: S301 - made here


def test_a_version_that_was_never_made_current_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    content = sequences([3])
    write(path, content)

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(versions, "sync", killed)  # behind the renaming of the folder
        with pytest.raises(SystemExit):
            write(path, sequences([7]))
    assert_holds(Store(path), content)
    assert folders(path) == ["v0001", "v0002"]
    assert_holds(write(path, sequences([8])), sequences([8]))
    assert folders(path) == ["v0001", "v0002"]


def test_a_manifest_that_cannot_be_replaced_leaves_no_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    content = sequences([3])
    write(path, content)

    def full(place: Path, data: bytes) -> None:
        if place == path / "manifest.json":
            raise LowtideError(what="full", why="", fix="")
        write_beside(place, data)

    monkeypatch.setattr(versions, "write_beside", full)
    with pytest.raises(LowtideError, match="full"):
        write(path, sequences([7]))
    assert folders(path) == ["v0001"]
    assert_holds(Store(path), content)


def test_a_version_whose_readers_cannot_be_told_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    for number in range(2):
        write(path, sequences([number + 1]))

    def others(name: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR and name == path / "v0001" / "manifest.json":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(name, flags, *mode)

    opened = os.open
    monkeypatch.setattr(os, "open", others)
    write(path, sequences([9]))
    assert folders(path) == ["v0001", "v0002", "v0003"]


def test_a_folder_that_goes_while_it_is_written_to_is_said(tmp_path: Path) -> None:
    def write_on() -> None:
        with StoreWriter(tmp_path / "a", SCHEMA) as writer:
            writer.add(*sequences([3])[0])
            shutil.rmtree(tmp_path / "a")
            writer.commit()

    with pytest.raises(LowtideError, match="No such file"):
        write_on()
    assert not (tmp_path / "a").exists()


def test_a_version_whose_manifest_is_gone_is_no_version(tmp_path: Path) -> None:
    pickled = pickle.dumps(write(tmp_path / "a", sequences([3])))
    (tmp_path / "a" / "v0001" / "manifest.json").unlink()
    with pytest.raises(LowtideError, match=r"manifest.json is damaged: it is not there"):
        Store(tmp_path / "a")
    with pytest.raises(LowtideError, match="not there any more"):
        pickle.loads(pickled)  # noqa: S301 - made here


def test_a_store_can_be_opened_by_who_may_not_write(tmp_path: Path) -> None:
    content = sequences([3])
    write(tmp_path / "a", content)
    for place in (tmp_path / "a").rglob("*"):
        place.chmod(0o555 if place.is_dir() else 0o444)
    (tmp_path / "a").chmod(0o555)
    assert_holds(Store(tmp_path / "a"), content)
    for place in [tmp_path / "a", *(tmp_path / "a").rglob("*")]:
        place.chmod(0o755)
