"""Tables are told to the kernel as they are, and what is not set is known."""

from __future__ import annotations

import numpy as np
import pytest

from lowtide.data.disk.step_tables import StepTables, clear_padding

FLOAT = np.dtype(np.float32)


def tables() -> StepTables:
    found = StepTables(3, FLOAT, (2,))
    found.set(1, np.array([0, 2, 3]), np.arange(6, dtype=np.float32).reshape(3, 2))
    return found


def test_what_is_not_set_is_missing_once() -> None:
    assert tables().missing(np.array([2, 1, 0, 2])) == [0, 2]
    assert tables().missing(np.array([1, 1])) == []


@pytest.mark.parametrize("batch_first", [True, False])
def test_rows_are_copied_and_cleared(batch_first: bool) -> None:
    out = np.full((2, 2, 2), -1, np.float32)
    spans = np.array([[1, 0, 0, 2, 1, 0], [1, 1, 0, 1, 0, 0]])
    assert tables().copy(spans, out, batch_first=batch_first) is None
    clear_padding(out, np.array([1, 2]), batch_first=batch_first)
    rows = out if batch_first else out.swapaxes(0, 1)
    assert rows.tolist() == [[[4, 5], [0, 0]], [[0, 1], [2, 3]]]


@pytest.mark.parametrize("table", [0, 2, 3])
def test_a_table_that_is_not_set_holds_nothing(table: int) -> None:
    out = np.full((1, 2, 2), -1, np.float32)
    assert tables().copy(np.array([[table, 0, 0, 1, 0, 0]]), out) == 0
    assert (out == -1).all()


def test_the_kernel_is_never_given_another_type() -> None:
    with pytest.raises(AssertionError):
        tables().copy(np.array([[1, 0, 0, 2, 0, 0]]), np.empty((1, 2, 2)))
    with pytest.raises(AssertionError):
        tables().copy(np.array([[1, 0, 0, 2, 0, 0]]), np.empty((1, 2, 4), np.float32)[..., ::2])
    with pytest.raises(AssertionError):
        tables().set(0, np.array([0, 1]), np.empty((1, 3), np.float32))


def test_a_table_that_is_set_again_stays_where_it_was() -> None:
    found = tables()
    found.set(1, np.array([0, 1]), np.full((1, 2), 9, np.float32))
    assert found.copy(np.array([[1, 1, 0, 1, 0, 0]]), out := np.zeros((1, 1, 2), np.float32)) is None
    assert out.tolist() == [[[4, 5]]]
