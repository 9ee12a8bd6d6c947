"""A revision keeps the sequences and changes what it is told to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lowtide.data import Store
from lowtide.data.splitting.splits import make_splits
from lowtide.data.transforms import fit_transforms
from lowtide.errors import LowtideError
from tests.data.store_cases import assert_holds, sequences, write

MADE = sequences([40, 3, 7, 8], seed=3)


def test_splits_and_transforms_are_added_without_writing_the_sequences_again(tmp_path: Path) -> None:
    store = write(tmp_path / "a", MADE, shard_bytes=256, documents={"a": "1", "b": "2"})
    shards = store.manifest.shards
    splits = make_splits({"train": 0.5, "valid": 0.5}, ids=store.ids.chunks(), lengths=np.asarray(store.lengths))
    store = store.revise(splits=splits, documents={"b": "3"})
    store = store.revise(transforms=fit_transforms(store.split("train"), {"x": "standard"}))
    assert_holds(store, MADE)
    store.verify()
    assert store.manifest.shards == shards
    assert store.splits == ("train", "valid")
    assert [transform.kind for transform in store.transforms] == ["standard"]
    assert (store.document("a"), store.document("b")) == ("1", "3")
    assert sorted(path.name for path in (tmp_path / "a").glob("v*")) == ["v0001", "v0002", "v0003"]


def test_another_version_than_the_current_one_is_not_revised(tmp_path: Path) -> None:
    store = write(tmp_path / "a", MADE)
    write(tmp_path / "a", MADE[:1])
    with pytest.raises(LowtideError, match=r"version 1 of .* was to be revised"):
        store.revise(notes={})
    assert_holds(Store(tmp_path / "a"), MADE[:1])


def test_a_revision_that_fails_leaves_the_store_alone(tmp_path: Path) -> None:
    store = write(tmp_path / "a", MADE)
    splits = make_splits({"train": 0.5, "valid": 0.5}, ids=["a", "b"], lengths=np.array([1, 1]))
    with pytest.raises(LowtideError, match="splits are of 2 sequences"):
        store.revise(splits=splits)
    assert_holds(Store(tmp_path / "a"), MADE)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".writer", "manifest.json", "v0001"]
