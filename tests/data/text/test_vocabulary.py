"""Categories have codes that stay what they are, and values that are none are named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.data.text.vocabulary import Vocabulary, code_type

WORDS = st.lists(st.sampled_from(["a", "b", "", "ü", "a b", "None"]), max_size=30)


@given(WORDS, WORDS)
def test_learnt_codes_decode_to_the_values_and_never_change(first: list[str], second: list[str]) -> None:
    vocabulary = Vocabulary()
    codes = vocabulary.learn(first)
    before = vocabulary.entries
    vocabulary.learn(second)
    assert vocabulary.entries[: len(before)] == before == list(dict.fromkeys(first))
    assert vocabulary.encode(first).tolist() == codes.tolist()
    assert vocabulary.decode(codes) == first


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_arrow_columns_of_text_are_encoded(kind: pa.DataType) -> None:
    column = pa.array(["b", "a", "b", "c"]).cast(kind)
    assert Vocabulary(["a", "b", "c"]).encode(column[1:]).tolist() == [0, 1, 2]
    assert Vocabulary(["a", "b", "c"]).encode(pa.chunked_array([column, column[:0]])).tolist() == [1, 0, 1, 2]


def test_entries_of_a_dictionary_that_no_row_has_are_not_learnt() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2]), pa.array(["x", "unused", "y"]))
    vocabulary = Vocabulary()
    assert vocabulary.learn(column).tolist() == [1, 0, 1]
    assert vocabulary.entries == ["x", "y"]


def test_values_that_are_no_category_are_named() -> None:
    vocabulary = Vocabulary(["red", "green"], name="colour")
    with pytest.raises(lowtide.LowtideError, match="'colour': 'blue' is none of its 2 categories"):
        vocabulary.encode(["red", "blue"])
    for column in (pa.array(["red", None]), pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["red"]))):
        with pytest.raises(lowtide.LowtideError, match="1 values are missing"):
            vocabulary.learn(column)
    with pytest.raises(lowtide.LowtideError, match="a value is missing"):
        vocabulary.learn(pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["red", None])))
    with pytest.raises(lowtide.LowtideError, match="codes from 0 to 2"):
        vocabulary.decode(np.array([0, 2]))
    with pytest.raises(lowtide.LowtideError, match="'red' is no text, or is there twice"):
        Vocabulary(["red", "red"])
    assert "green" in vocabulary
    assert "blue" not in vocabulary


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, "int8"), (128, "int8"), (129, "int16"), (32_768, "int16"), (32_769, "int32")]
)
def test_codes_are_stored_in_the_smallest_type_that_holds_them(size: int, dtype: str) -> None:
    assert code_type(size) == dtype
    assert np.iinfo(dtype).max >= size - 1
