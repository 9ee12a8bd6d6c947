"""Arrow arrays over NumPy's memory and back, without copies.

As `pyarrow.array` and `to_numpy` do, which import pandas where it is installed: a tenth of a second and 30 MB that
nothing here needs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.fields import Array


def numbers_of(column: pa.Array) -> Array:
    """The numbers of an Arrow array; what lies under nulls is left as it is."""
    data = column.buffers()[1]
    dtype = np.dtype(column.type.to_pandas_dtype())
    if data is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=column.offset + len(column))[column.offset :]


def present_in(column: pa.Array) -> NDArray[np.bool_]:
    """Which of the values of an Arrow array are not null."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], dtype=np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(np.bool_)


def arrow_numbers(values: Array, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """An Arrow array of numbers, of one axis and in order; null where not present."""
    assert values.ndim == 1
    flat = np.ascontiguousarray(values)
    validity = None if present is None or present.all() else bits_of(present)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [validity, pa.py_buffer(flat)])


def arrow_texts(texts: list[str]) -> pa.Array:
    """An Arrow array of texts."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    assert ends[-1] < 1 << 31
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def arrow_mask(chosen: NDArray[np.bool_]) -> pa.Array:
    """An Arrow array of truths."""
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, bits_of(chosen)])


def bits_of(truths: NDArray[np.bool_]) -> pa.Buffer:
    """One bit each, as Arrow has them."""
    return pa.py_buffer(np.packbits(truths, bitorder="little"))
