"""What is learnt from text is learnt from the training part alone, however the data are split and cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lowtide.data import ByIds, ByTime, Store
from lowtide.data.splitting.rules import Rule
from lowtide.data.text import reader
from tests.data.ingesting_cases import content, filled, quietly, refused

BY_TIME = ByTime(fractions={"test": 0.4, "train": 0.6})
UNKNOWN = "characters or words that the vocabulary does not have, as the unknown"


def text(lines: int) -> str:
    """Lines of which each has characters that no other has."""
    return "".join("a".join(chr(0x4E00 + 9 * line + place) for place in range(9)) + "\n" for line in range(lines))


def trained_on(store: Store) -> set[str]:
    """The characters of the training part, by what the store holds."""
    made = set()
    for sequence in store.split("train"):
        for codes in (sequence.inputs, sequence.targets):
            if codes is not None:
                made |= set(np.asarray(codes).tolist())
    entries = store.vocabulary("x")
    return {entries[code] for code in made}


@pytest.mark.parametrize("piece", [reader._PIECE, 37])  # noqa: SLF001 - so that texts come in pieces
@pytest.mark.parametrize("horizon", [0, 2])
@pytest.mark.parametrize("unit", ["line", "document", 7])
@pytest.mark.parametrize("split", [{"test": 0.5, "train": 0.5}, BY_TIME])
def test_a_vocabulary_is_that_of_the_training_part(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: Rule | dict[str, float],
    unit: str | int,
    horizon: int,
    piece: int,
) -> None:
    monkeypatch.setattr(reader, "_PIECE", piece)
    monkeypatch.setattr(reader, "_LOOK_BACK", 4)
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(text(12 + ord(name) % 3) + name)
    store = quietly(tmp_path, tmp_path / "store", text="characters", unit=unit, split=split, horizon=horizon)
    known = trained_on(store)
    assert "" not in known
    assert known == set(store.vocabulary("x")) - {""}
    assert filled(store)[UNKNOWN] > 0


def test_without_a_split_a_vocabulary_is_that_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab\ncd\n")
    assert quietly(tmp_path / "a.txt", tmp_path / "store", text="characters").vocabulary("x") == ["", *"abcd"]


def test_a_vocabulary_of_a_column_is_that_of_the_training_part(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": ["p", "q", "r"], "s": ["ab", "bcx", "de"]})
    split = ByIds({"train": ["p", "r"], "test": ["q"]})
    store = quietly(table, tmp_path / "store", sequence="u", inputs="s", text="characters", split=split)
    assert store.vocabulary("x") == ["", *"abde"]
    assert content(store)["q"] == {"x": [2, 0, 0]}
    assert filled(store) == {UNKNOWN: 2}


def test_a_tokenizer_learns_nothing_of_what_is_tested_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("tide " * 50 + "\n" + "secret " * 50 + "\n")
    split = {"train": ["a.txt:1"], "test": ["a.txt:2"]}
    trained = {"train": "bpe", "size": 300}
    store = quietly(tmp_path / "a.txt", tmp_path / "store", text=trained, split=split)
    entries = store.vocabulary("x")
    assert "tide" in entries
    assert not any("secr" in entry for entry in entries)
    assert store.decode(content(store)["a.txt:2"]["x"][:6]).startswith("secret"[:3])


def test_spans_of_tokens_that_are_still_to_be_learnt_have_no_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("tide " * 50)
    asked: dict[str, Any] = {"text": {"train": "bpe", "size": 300}, "unit": 5}
    with refused(tmp_path, "with spans of 5 codes and a split", "trained already"):
        quietly(tmp_path / "a.txt", tmp_path / "store", **asked, split=BY_TIME)
    assert len(quietly(tmp_path / "a.txt", tmp_path / "store", **asked)) > 1
