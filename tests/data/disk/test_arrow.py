"""Numbers, truths and texts become Arrow arrays and come back as pyarrow's own conversions would have it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.disk.arrow import arrow_mask, arrow_numbers, arrow_texts, numbers_of, present_in

DTYPES = ["float32", "float64", "float16", "uint16", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(numbers=st.lists(st.integers(0, 100)), data=st.data())
def test_numbers_go_there_and_back(dtype: str, numbers: list[int], data: st.DataObject) -> None:
    values = np.array(numbers, dtype=dtype)
    made = arrow_numbers(values)
    assert made.equals(pa.array(values))
    first = data.draw(st.integers(0, len(numbers)))
    np.testing.assert_array_equal(numbers_of(made[first:]), values[first:])
    assert numbers_of(made).dtype == values.dtype


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())), st.data())
def test_what_is_missing_is_told(pairs: list[tuple[int, bool]], data: st.DataObject) -> None:
    present = np.array([there for _, there in pairs], dtype=np.bool_)
    made = arrow_numbers(np.array([number for number, _ in pairs], dtype=np.int64), present)
    assert made.to_pylist() == [number if there else None for number, there in pairs]
    first = data.draw(st.integers(0, len(pairs)))
    assert present_in(made[first:]).tolist() == present[first:].tolist()
    assert arrow_mask(present).to_pylist() == present.tolist()


@given(st.lists(st.text()))
def test_texts_are_texts(texts: list[str]) -> None:
    made = arrow_texts(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


def test_no_pandas_is_imported() -> None:
    program = (
        "import sys, numpy as np; from lowtide.data.disk import arrow\n"
        "arrow.numbers_of(arrow.arrow_numbers(np.arange(3))); arrow.arrow_texts(['a']); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
