"""What belongs to a store besides its sequences is checked when it is written and when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.disk.supplements import check_vocabulary_grows, read_splits, read_vocabulary
from lowtide.data.splitting.splits import Splits, make_splits
from lowtide.errors import LowtideError
from tests.data.store_cases import file_entries, sequences, write

LENGTHS = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = sequences(LENGTHS)
    splits = make_splits({"train": 0.5, "valid": 0.5}, ids=[name for name, _ in made], lengths=np.array(LENGTHS))
    path = tmp_path_factory.mktemp("store") / "store"
    return write(path, made, splits=splits, documents={"note": "ebb"}, vocabularies={"words": ["a"]})


def splits_of(store: Store, path: Path) -> Splits:
    described = store.manifest.splits
    assert described is not None
    return read_splits(path, described, len(store))


def test_splits_come_back(store: Store) -> None:
    found = splits_of(store, store.path / store.manifest.arrays["splits.npy"].path)
    assert found.names == ("train", "valid")
    assert sorted([*found.part("train").index, *found.part("valid").index]) == list(range(len(LENGTHS)))


@given(data=st.data())
def test_splits_with_a_damaged_head_are_never_an_error_of_the_reader(
    store: Store, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    written = (store.path / store.manifest.arrays["splits.npy"].path).read_bytes()
    changed = bytearray(written)
    changed[data.draw(st.integers(0, 127))] = data.draw(st.sampled_from([*b"\"'([{}\\\n\0<>8", 255]))
    path = tmp_path_factory.getbasetemp() / "splits.npy"
    path.write_bytes(changed)
    try:
        found = splits_of(store, path)
    except LowtideError:
        return
    assert len(found.values) == len(LENGTHS)


def test_splits_of_no_axis_are_refused(store: Store, tmp_path: Path) -> None:
    np.save(tmp_path / "splits.npy", np.int8(1))
    with pytest.raises(LowtideError, match=r"splits.npy is damaged: .*shape \(\)"):
        splits_of(store, tmp_path / "splits.npy")


@pytest.mark.parametrize(
    "content", ["{", "{}", "[1]", '["a", null]', pytest.param("[" * 100_000, id="deeper than Python goes")]
)
def test_what_is_no_list_of_texts_is_no_vocabulary(tmp_path: Path, content: str) -> None:
    (tmp_path / "words.json").write_text(content)
    with pytest.raises(LowtideError, match=r"words.json is damaged"):
        read_vocabulary(tmp_path / "words.json")


def test_a_vocabulary_comes_back(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text(json.dumps(["a", "b"]))
    assert read_vocabulary(tmp_path / "words.json") == ["a", "b"]


@pytest.mark.parametrize("after", [[], ["a"], ["b", "a"], ["a", "c", "b"]])
def test_a_vocabulary_whose_codes_change_is_refused(after: list[str]) -> None:
    check_vocabulary_grows("words", ["a", "b"], ["a", "b", "c"])
    with pytest.raises(LowtideError, match="does not begin with the 2 entries"):
        check_vocabulary_grows("words", ["a", "b"], after)


@pytest.mark.parametrize("notes", [{"mean": float("nan")}, {"when": object()}, {"all": [float("inf")]}])
def test_notes_that_are_no_plain_values_are_refused_and_nothing_is_written(store: Store, notes: dict[str, Any]) -> None:
    with pytest.raises(LowtideError, match="cannot be written as JSON"):
        store.revise(notes=notes)
    assert Store(store.path).manifest.version == store.manifest.version


CODES = Schema((Field("x", "inputs", "step", "int16", 0, (), "word"),), "int64")


def write_codes(path: Path, words: list[str], *, append: bool = False) -> None:
    with StoreWriter(path, CODES, append=append) as writer:
        writer.add(1, {"x": np.arange(len(words), dtype=np.int16)})
        writer.commit(vocabularies={"word": words}, documents={"tokenizer": "{ünïcode}"}, notes={"dropped": 3})


def test_vocabularies_documents_and_notes_are_kept(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb", "flood", "naïve"])
    store = Store(tmp_path / "a")
    assert store.vocabulary("word") == ["ebb", "flood", "naïve"]
    assert store.document("tokenizer") == "{ünïcode}"
    assert store.manifest.notes == {"dropped": 3}
    with pytest.raises(LowtideError, match="no vocabulary 'other'"):
        store.vocabulary("other")


def test_a_field_of_codes_needs_its_vocabulary(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", CODES) as writer:
        writer.add(1, {"x": np.zeros(3, np.int16)})
        with pytest.raises(LowtideError, match="the vocabulary 'word' was not given"):
            writer.commit()


def test_an_appended_vocabulary_only_grows(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb", "flood"])
    with pytest.raises(LowtideError, match="does not begin with the 2 entries"):
        write_codes(tmp_path / "a", ["flood", "ebb", "tide"], append=True)
    write_codes(tmp_path / "a", ["ebb", "flood", "tide"], append=True)
    assert Store(tmp_path / "a").vocabulary("word") == ["ebb", "flood", "tide"]
    assert len(Store(tmp_path / "a")) == 2


def test_what_is_written_is_all_in_the_manifest(tmp_path: Path) -> None:
    write_codes(tmp_path / "a", ["ebb"])
    named = {entry["path"] for entry in file_entries(json.loads((tmp_path / "a" / "manifest.json").read_bytes()))}
    there = {str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert there - named == {"manifest.json", "v0001/manifest.json", ".writer"}
    assert named <= there
