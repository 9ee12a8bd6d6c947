"""An array in several pieces is cut and read like the array that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, SequenceArray
from lowtide.data.fields import from_bfloat16
from lowtide.errors import LowtideError

X = Field("x", "inputs", "step", "float32", 2)
SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=5)


def made(sizes: list[int], field: Field = X) -> tuple[SequenceArray, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    whole = np.arange(sum(sizes) * 2).reshape(-1, 2).astype(field.storage)
    pieces = np.split(whole, np.cumsum(sizes)[:-1])
    return SequenceArray(pieces, field), whole


@given(SIZES)
def test_it_has_the_shape_and_the_numbers_of_the_whole(sizes: list[int]) -> None:
    array, whole = made(sizes)
    assert (array.shape, array.ndim, array.dtype, array.size, array.nbytes, len(array)) == (
        *(whole.shape, whole.ndim, whole.dtype, whole.size, whole.nbytes),
        len(whole),
    )
    np.testing.assert_array_equal(np.asarray(array), whole)
    np.testing.assert_array_equal(np.asarray(array, dtype=np.float64), whole)
    np.testing.assert_array_equal(np.array(list(array)).reshape(whole.shape), whole)


BOUND = st.none() | st.integers(-40, 40)


@given(SIZES, BOUND, BOUND, st.none() | st.integers(1, 9))
def test_it_is_cut_along_time(sizes: list[int], start: int | None, stop: int | None, step: int | None) -> None:
    array, whole = made(sizes)
    key = slice(start, stop, step)
    np.testing.assert_array_equal(np.asarray(array[key]), whole[key])
    np.testing.assert_array_equal(np.asarray(array[key, 1]), whole[key, 1])
    np.testing.assert_array_equal(np.asarray(array[key, None]), whole[key, None])
    assert array[:, None][key].shape == whole[:, None][key].shape


@given(SIZES, st.integers(-40, 40))
def test_one_step_is_an_array(sizes: list[int], step: int) -> None:
    array, whole = made(sizes)
    if -len(whole) <= step < len(whole):
        np.testing.assert_array_equal(array[step], whole[step])
        np.testing.assert_array_equal(array[step, 1], whole[step, 1])
    else:
        with pytest.raises(IndexError):
            array[step]


def test_cutting_copies_nothing() -> None:
    array, whole = made([3, 4, 5])
    whole[4] = -1
    assert float(array[2:8][2, 0]) == -1


def test_bfloat16_is_read_as_float32() -> None:
    array, whole = made([2, 3], Field("x", "inputs", "step", "bfloat16", 2))
    assert array.dtype == np.float32
    assert array.nbytes == 4 * array.size
    np.testing.assert_array_equal(np.asarray(array), from_bfloat16(whole))
    np.testing.assert_array_equal(array[3], from_bfloat16(whole[3]))
    np.testing.assert_array_equal(np.array(list(array)), from_bfloat16(whole))


@pytest.mark.parametrize("key", [slice(None, None, -1), [0, 1], np.array([True] * 5), "x", ()])
def test_what_cannot_be_done_in_pieces_is_refused(key: object) -> None:
    with pytest.raises(LowtideError, match="in several pieces"):
        made([2, 3])[0][key]


def test_it_is_never_passed_off_as_memory_that_is_there() -> None:
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(made([2, 3])[0], copy=False)


def test_it_says_what_it_is() -> None:
    assert repr(made([2, 3])[0]) == "SequenceArray(shape=(5, 2), dtype=float32, pieces=2)"
