"""An object as plain numbers and back, and never as a program."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from lowtide.data.transforming.own_numbers import NotNumbersError, class_name, decode, encode, find_class

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    back = decode(json.loads(json.dumps(encode(value, "a"), allow_nan=False)))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.int8).reshape(2, 3), np.array(0.1), np.float32(0.1), np.zeros((0, 2)), np.array([True])],
)
def test_arrays_come_back_with_type_and_shape(array: np.ndarray) -> None:
    back = decode(json.loads(json.dumps(encode(array, "a"), allow_nan=False)))
    assert (type(back), back.dtype, back.shape) == (type(array), array.dtype, array.shape)
    assert np.array_equal(back, array)


@pytest.mark.parametrize("value", [np.array([np.nan]), np.array(["a"]), {1: 2}, object(), [print]])
def test_what_is_no_number_is_named(value: object) -> None:
    with pytest.raises(NotNumbersError, match="scale"):
        encode(value, "scale")


def test_a_class_is_found_where_the_program_has_it_and_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_class(class_name(StandardScaler())) is StandardScaler
    assert find_class("sklearn.nothing:At") is None
    assert find_class("builtins:print") is None
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert find_class("this:C") is None
    assert "this" not in sys.modules
