"""Numbers are stored as what was asked for, or refused; what float16 would do is told exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lowtide.data.fields import Field, from_bfloat16
from lowtide.data.ingestion.dtypes import HalfReport, UnfitError, cast, stored

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def field(dtype: Any, width: int = 0) -> Field:  # noqa: ANN401 - a StoredType
    return Field("x", "inputs", "step", dtype, width)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "int64", "float32", "float64", "bool"])
def test_numbers_that_fit_come_through_unchanged(dtype: str, source: str) -> None:
    numbers = np.array([0, 1, 100], dtype=source)
    values, missing = cast(numbers, field(dtype))
    assert values.dtype == dtype
    assert values.tolist() == numbers.tolist()
    assert missing is None


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(3)), elements=FLOATS))
def test_columns_side_by_side_are_features(table: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    columns = [pa.array(table[:, feature]) for feature in range(3)]
    values, missing = cast(columns, field("float32", 3))
    np.testing.assert_array_equal(values, table)
    assert missing is None
    assert values.flags.c_contiguous


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (pa.array([1.0, None, float("nan"), 4.0], pa.float32()), "float32"),
        (pa.array([1.0, None, float("nan"), 4.0], pa.float64()), "int16"),
        (pa.array([1, None, None, 4], pa.int64()), "float32"),
        (pa.array([1, None, None, 4], pa.int16()), "int8"),
        (pa.array([1.0, None, float("nan"), 4.0], pa.float64()), "bfloat16"),
    ],
)
def test_nulls_and_nan_are_missing(column: pa.Array, dtype: str) -> None:
    values, missing = cast([column], field(dtype))
    assert missing is not None
    assert missing.tolist() == [False, True, True, False]
    assert values[[0, 3]].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("numbers", "dtype", "told"),
    [
        ([1.0, 70000.0], "float16", "70000.0 does not fit float16"),
        ([1.0, -65520.0], "float16", "does not fit float16"),
        ([1.0, 1e39], "float32", "does not fit float32"),
        ([1.0, 3.4e38], "bfloat16", "does not fit bfloat16"),
        ([1, 128], "int8", "128 does not fit int8"),
        ([1, -32769], "int16", "does not fit int16"),
        ([1.0, 2.0**63], "int64", "does not fit int64"),
        ([1.0, 2.5], "int32", "2.5 is no whole number"),
        ([1.0, float("inf")], "float64", "infinite"),
        ([1.0, float("-inf")], "float32", "infinite"),
        ([1.0, float("inf")], "bfloat16", "infinite"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is(numbers: list[float], dtype: str, told: str) -> None:
    with pytest.raises(UnfitError) as caught:
        cast(np.array(numbers), field(dtype))
    assert told in caught.value.what
    assert caught.value.row == 1
    with pytest.raises(UnfitError) as caught:
        cast(np.array([[0, 0], [0, numbers[1]]]), field(dtype, 2))
    assert (caught.value.row, caught.value.feature) == (1, 1)


def test_uint64_beyond_int64_is_refused() -> None:
    with pytest.raises(UnfitError, match="does not fit int64"):
        cast(np.array([1 << 63], dtype=np.uint64), field("int64"))


@pytest.mark.parametrize("odd", [np.array([1 + 2j]), np.array(["a"]), np.array(["2020-01-01"], dtype="datetime64[D]")])
def test_what_is_no_number_is_refused(odd: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UnfitError, match="real numbers"):
        cast(odd, field("float32"))


def test_large_numbers_whose_sum_overflows_are_no_error() -> None:
    big = np.full(100, 3e38, dtype=np.float32)
    values, missing = cast(big, field("float32"))
    assert missing is None
    assert (values == big).all()


@given(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_bfloat16_is_rounded_to_the_nearest(numbers: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    values, _ = cast(numbers, field("bfloat16"))
    bits = stored(values, field("bfloat16"))
    assert bits.dtype == np.uint16
    near = np.abs(from_bfloat16(bits) - numbers)
    assert (near <= np.maximum(np.abs(numbers) * 2.0**-8, 2.0**-133)).all()


def test_a_single_bfloat16_keeps_its_shape() -> None:
    single = Field("y", "targets", "sequence", "bfloat16", 0)
    assert stored(np.asarray(np.float32(1.5)), single).shape == ()


@given(st.lists(arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-70000, 70000, width=32)), min_size=1))
def test_the_largest_error_of_float16_is_exact(blocks: list[np.ndarray[Any, np.dtype[np.float32]]]) -> None:
    report = HalfReport("x")
    for block in blocks:
        report.look(block)
    together = np.concatenate(blocks)
    with np.errstate(over="ignore"):
        errors = np.abs(together.astype(np.float16).astype(np.float32) - together)
    assert report.bytes == 2 * len(together)
    assert report.overflows == bool(np.isinf(errors).any())
    if not report.overflows:
        assert report.error == errors.max()
        assert report.error == abs(np.float32(np.float16(report.at)) - np.float32(report.at))


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-(2.0**-13), 2.0**-13, width=32)))
def test_the_largest_error_of_float16_is_exact_near_zero(numbers: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    report = HalfReport("x")
    for number in numbers:
        report.look(np.array([number]))
    errors = np.abs(numbers.astype(np.float16).astype(np.float32) - numbers)
    assert report.error == errors.max()


def test_the_report_says_what_to_write() -> None:
    report = HalfReport("x")
    report.look(np.array([0.1], dtype=np.float32))
    assert 'dtypes={"x": "float16"}' in report.line()
    report.look(np.array([1e6], dtype=np.float32))
    assert "65504" in report.line()
