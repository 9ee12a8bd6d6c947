"""Categories become codes in the order in which they appear, and what is no category is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.ingestion import categories as module
from lowtide.data.ingestion.categories import Categories
from lowtide.data.ingestion.dtypes import UnfitError
from tests.data.ingesting_cases import content, quietly, refused

WORDS = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "dé", ""])), max_size=12)


@given(st.lists(WORDS, max_size=4))
def test_codes_lead_back_to_the_values(blocks: list[list[str | None]]) -> None:
    made = Categories("c", mixed=False)
    seen: list[str] = []
    for block in blocks:
        codes, missing = made.encode([pa.array(block, pa.string())])
        entries = made.vocabulary.entries
        absent = [value is None for value in block]
        assert (missing is None and not any(absent)) or (missing is not None and missing.tolist() == absent)
        known = [(entries[code], value) for code, value in zip(codes.tolist(), block, strict=True) if value is not None]
        assert all(entry == value for entry, value in known)
        seen += [value for _, value in known]
    assert made.vocabulary.entries == list(dict.fromkeys(seen))


def test_what_a_store_knows_keeps_its_codes() -> None:
    made = Categories("c", ["north", "south"], mixed=False)
    codes, _ = made.encode([pa.array(["west", "south"])])
    assert codes.tolist() == [2, 1]
    assert made.vocabulary.entries == ["north", "south", "west"]


@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        [pa.array(["a", "b"]).dictionary_encode()],
        [pa.array(["a", "b"], pa.large_string())],
    ],
)
def test_text_of_every_kind_is_taken(values: Any) -> None:  # noqa: ANN401 - as sources have it
    assert Categories("c", mixed=False).encode(values)[0].tolist() == [0, 1]


@pytest.mark.parametrize("odd", ["1", "-2.5", "3e4", " 7 "])
def test_numbers_among_text_are_refused_unless_meant(odd: str) -> None:
    made = Categories("c", mixed=False)
    made.encode([pa.array(["a", "b"])])
    with pytest.raises(UnfitError, match="'a' elsewhere") as caught:
        made.encode([pa.array(["a", "b", odd])])
    assert caught.value.row == 2
    meant = Categories("c", mixed=True)
    assert meant.encode([pa.array(["a", odd])])[0].tolist() == [0, 1]


@pytest.mark.parametrize("word", ["nan", "inf", "1a", "a1", "e5", "1-2", "0x10"])
def test_words_that_look_like_numbers_to_python_are_words(word: str) -> None:
    assert Categories("c", mixed=False).encode([pa.array(["a", word])])[0].tolist() == [0, 1]


def test_decimal_commas_are_refused() -> None:
    with pytest.raises(UnfitError, match="decimal comma") as caught:
        Categories("c", mixed=False).encode([pa.array(["1,5"])])
    assert 'decimal=","' in caught.value.fix


def test_text_that_never_repeats_is_no_category(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    made = Categories("c", mixed=False)
    with pytest.raises(UnfitError, match="more than 100 categories"):
        made.encode([pa.array([f"text {number}" for number in range(101)])])


def test_numbers_that_were_said_to_be_categories_are_taken_as_text() -> None:
    made = Categories("c", mixed=True)
    codes, missing = made.encode([pa.array([3, None, 5])])
    assert (codes.tolist(), made.vocabulary.entries) == ([0, 0, 1], ["3", "5"])
    assert missing is not None
    assert missing.tolist() == [False, True, False]


def test_numbers_that_begin_far_below_are_taken_for_no_categories(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,t,x\n" + "".join(f"1,{row},\n" for row in range(25_000)) + "1,99999,1.5\n2,0,2\n")
    asked: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
    with refused(tmp_path, "'x' holds numbers", 'dtypes={"x": "float32"}'):
        quietly(path, tmp_path / "store", **asked, missing="drop")
    store = quietly(path, tmp_path / "store", **asked, missing="drop", dtypes={"x": "float32"})
    assert content(store) == {1: {"x": [1.5]}, 2: {"x": [2.0]}}
    codes = quietly(path, tmp_path / "codes", **asked, missing="drop", dtypes={"x": "category"})
    assert codes.vocabulary("x") == ["1.5", "2"]


def test_codes_written_with_leading_zeros_are_categories(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,t,x\n1,1,01067\n1,2,10115\n")
    store = quietly(path, tmp_path / "store", sequence="u", order="t", inputs="x")
    assert store.vocabulary("x") == ["01067", "10115"]
