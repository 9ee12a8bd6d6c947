"""Rows wait in memory as they came, leave as a record batch, and make room for the next."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.disk.row_buffer import RowBuffer, single_row
from tests.data.store_cases import SCHEMA, STEP_BYTES, Sequences, arrow_rows, sequences

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=8)


def filled(made: Sequences) -> RowBuffer:
    """All of them: each other one by one, and those between as rows of their own."""
    buffer = RowBuffer(SCHEMA, 1 << 12)
    for number, (name, arrays) in enumerate(made):
        if number % 2:
            buffer.add_rows(pa.array([name]), np.array([len(arrays["x"])]), as_rows(arrays))
            continue
        buffer.begin(name)
        for step in range(len(arrays["x"])):
            buffer.extend(arrays, step, step + 1)
        buffer.end(arrays)
    return buffer


def as_rows(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values per sequence as a row of them."""
    return {key: array[None] if key in {"label", "place"} else array for key, array in arrays.items()}


@given(LENGTHS)
def test_rows_come_out_as_they_came_in(lengths: list[int]) -> None:
    made = sequences(lengths)
    buffer = filled(made)
    batch = buffer.batch(len(made))
    batch.validate(full=True)
    assert batch.equals(arrow_rows(made))
    assert buffer.lengths(len(made)).tolist() == lengths
    assert (buffer.rows, buffer.steps, buffer.last_steps) == (len(made), sum(lengths), lengths[-1])


@given(LENGTHS, st.data())
def test_rows_that_are_dropped_make_room_and_the_rest_stays(lengths: list[int], data: st.DataObject) -> None:
    made = sequences(lengths)
    buffer = filled(made)
    rows, steps = buffer.free_rows, buffer.free_steps
    dropped = data.draw(st.integers(0, len(made) - 1))
    buffer.drop(dropped)
    assert buffer.batch(buffer.rows).equals(arrow_rows(made[dropped:]))
    assert (buffer.free_rows, buffer.free_steps) == (rows + dropped, steps + sum(lengths[:dropped]))


def test_an_open_row_has_no_values_per_sequence_yet() -> None:
    (name, arrays) = sequences([3])[0]
    buffer = RowBuffer(SCHEMA, 1 << 12)
    buffer.begin(name)
    buffer.extend(arrays, 0, 3)
    batch = buffer.batch(1)
    assert [batch.column(column)[0].as_py() for column in ("label", "place")] == [None, None]
    assert batch.column("code")[0].as_py() == arrays["code"].tolist()


@pytest.mark.parametrize("steps", [1, 7])
def test_room_is_told_in_steps(steps: int) -> None:
    assert RowBuffer(SCHEMA, steps * STEP_BYTES).free_steps == steps


def test_a_row_by_itself_is_not_copied() -> None:
    (name, arrays) = sequences([5])[0]
    row = single_row(SCHEMA, name, arrays, arrays)
    assert row.equals(arrow_rows([(name, arrays)]))
    assert row.column("code").values.buffers()[1].address == arrays["code"].ctypes.data
    open_row = single_row(SCHEMA, name, arrays, None)
    assert open_row.column("label").null_count == open_row.column("place").null_count == 1
