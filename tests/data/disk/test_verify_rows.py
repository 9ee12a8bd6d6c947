"""Rows that contradict the lengths or each other are found, although every byte is the one that was written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowtide.data import StoreWriter
from lowtide.data.disk.files import digest
from lowtide.data.disk.verify import verify
from lowtide.data.disk.verify_rows import faults_of_rows
from lowtide.data.disk.versions import read_current
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, sequences, write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two versions, with a sequence in several pieces."""
    path = tmp_path_factory.mktemp("store") / "store"
    made = sequences([5, 0, 90, 12])
    write(path, made[:2], shard_bytes=512)
    with StoreWriter(path, SCHEMA, shard_bytes=512, append=True) as writer:
        for name, arrays in made[2:]:
            writer.add(name, arrays)
        writer.commit()
    return path


def rewritten(path: Path, lengths: list[int]) -> None:
    """Write other lengths into a store, and a manifest that calls them its own."""
    manifest = read_current(path)
    file = path / manifest.lengths.path
    content = file.read_bytes()
    file.write_bytes(content[:128] + np.array(lengths, dtype="<i8").tobytes())
    made = replace(manifest, lengths=replace(manifest.lengths, sha256=digest(file).sha256))
    for place in (path / "manifest.json", path / "v0002" / "manifest.json"):
        place.write_bytes(made.to_bytes())


@pytest.mark.parametrize(("lengths", "sequence"), [([5, 1, 90, 12], 1), ([5, 0, 89, 12], 2), ([5, 0, 90, 11], 3)])
def test_lengths_that_contradict_the_shards_are_found_though_all_checksums_fit(
    whole: Path, tmp_path: Path, lengths: list[int], sequence: int
) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    rewritten(path, [5, 0, 90, 12])
    verify(path)
    rewritten(path, lengths)
    with pytest.raises(LowtideError, match=f"sequence {sequence} has "):
        verify(path)


def test_rows_that_continue_others_than_the_manifest_says_are_found(tmp_path: Path) -> None:
    write(tmp_path / "a", sequences([5, 90, 12]), shard_bytes=512)
    manifest = read_current(tmp_path / "a")
    assert manifest.continued_rows.tolist() == [2, 3]
    assert faults_of_rows(tmp_path / "a", manifest) == {}
    found = faults_of_rows(tmp_path / "a", replace(manifest, continued_rows=np.array([2])))
    assert found == {
        "v0001/shard-00002.arrow": "values per sequence are missing",
        "v0001/shard-00003.arrow": "sequence 1 has 32 steps, and its length is 90",
        "v0001/shard-00004.arrow": "sequence 2 has 26 steps, and its length is 12",
    }
