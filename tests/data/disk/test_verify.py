"""Every byte of every file is looked at, and what is damaged is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Store, StoreWriter
from lowtide.data.disk.verify import verify
from lowtide.data.splitting.splits import make_splits
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, sequences, write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of file, of two versions."""
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences([5, 0, 90, 12])
    write(path, made[:2], shard_bytes=512)
    with StoreWriter(path, SCHEMA, shard_bytes=512, append=True) as writer:
        for name, arrays in made[2:]:
            writer.add(name, arrays)
        ids = [name for name, _ in made]
        splits = make_splits({"train": 0.5, "valid": 0.5}, ids=ids, lengths=np.array([5, 0, 90, 12]))
        writer.commit(vocabularies={"words": ["a", "b"]}, documents={"tokenizer": "text"}, splits=splits)
    return path


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != ".writer")


def test_a_whole_store_is_found_whole(whole: Path) -> None:
    assert len(files(whole)) > 9
    found = Store(whole).verify()
    assert found == verify(whole)
    data = [name for name in files(whole) if not name.endswith("manifest.json")]
    assert found.files == len(data)
    assert found.bytes == sum((whole / name).stat().st_size for name in data)
    assert "every one as it was written" in str(found)


@given(st.data())
def test_each_flipped_byte_of_each_file_is_found_and_named(whole: Path, data: st.DataObject) -> None:
    opened = Store(whole)
    name = data.draw(st.sampled_from(files(whole)))
    file = whole / name
    before = file.read_bytes()
    changed = bytearray(before)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(changed)
        with pytest.raises(LowtideError, match=f"1 of the files .* damaged: {name} "):
            opened.verify()
        with pytest.raises(LowtideError, match=name):
            verify(whole)
    finally:
        file.write_bytes(before)
    opened.verify()


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_each_missing_end_and_each_missing_file_is_found_and_named(whole: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    opened = Store(path)
    for name in files(path):
        file = path / name
        before = file.read_bytes()
        file.unlink()
        for content in (None, before[:kept]):
            if content is not None:
                file.write_bytes(content)
            with pytest.raises(LowtideError, match=f"damaged: {name} "):
                opened.verify()
            with pytest.raises(LowtideError, match=r"damaged|not a store"):
                verify(path)
        file.write_bytes(before)
    opened.verify()


def test_every_damaged_file_is_named(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    names = [name for name in files(path) if name.endswith(".arrow")]
    for name in names:
        (path / name).write_bytes(b"torn")
    with pytest.raises(LowtideError) as caught:
        verify(path)
    assert all(name in caught.value.what for name in names)
