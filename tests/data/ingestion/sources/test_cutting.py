"""Sorted rows become the sequences that they are, wherever batches end."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.disk.row_buffer import Name
from lowtide.data.fields import Field
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.chunk import RawChunk
from lowtide.data.ingestion.sources.cutting import Cutter, Cutting, differ
from lowtide.errors import LowtideError

STEP = FieldPlan(Field("x", "inputs", "step", "float32", 0, ("x",)), "number", ("x",))
LABEL = FieldPlan(Field("y", "targets", "sequence", "float32", 0, ("y",)), "number", ("y",))
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40).map(sorted)
ENDS = st.lists(st.integers(0, 40), max_size=6)


class ComplaintError(LowtideError):
    """Says which complaint was made."""


class Complaints:
    """Errors that name themselves."""

    def no_key(self, alias: str) -> LowtideError:
        """Of a row without a key."""
        return ComplaintError(what=f"no {alias}", why="", fix="")

    def twice(self, sequence: Name, order: pa.Scalar) -> LowtideError:
        """Of two rows of one order."""
        return ComplaintError(what=f"twice {sequence} {order.as_py()}", why="", fix="")

    def changes(self, sequence: Name, column: str, values: tuple[object, object]) -> LowtideError:
        """Of a label that changes."""
        return ComplaintError(what=f"changes {sequence} {column} {values}", why="", fix="")


def cutter(*, keyed: bool = True, ordered: bool = True, duplicates: str = "keep") -> Cutter:
    fields = (STEP, LABEL)
    return Cutter(
        Cutting(
            fields,
            keyed=keyed,
            unkeyed_name=7,
            ordered=ordered,
            refuse_duplicates=duplicates == "error",
            keep_duplicates=duplicates == "keep",
        ),
        Complaints(),
    )


def batches(rows: list[tuple[Any, ...]], ends: list[int]) -> list[pa.RecordBatch]:
    """Rows of key, order and label, the value being the row's number."""
    table = pa.record_batch(
        {
            "s": pa.array([row[0] for row in rows], pa.int64()),
            "o": pa.array([row[1] for row in rows], pa.int64()),
            "f0_0": pa.array(np.arange(len(rows), dtype=np.float32)),
            "f1_0": pa.array([float(row[2] if len(row) > 2 else row[0] or 0) for row in rows], pa.float32()),
        }
    )
    places = sorted({0, len(rows), *(end for end in ends if end < len(rows))})
    return [table[start:stop] for start, stop in pairwise(places)]


def cut(cutting: Cutter, parts: list[pa.RecordBatch]) -> list[RawChunk]:
    chunks = [chunk for part in parts for chunk in cutting.cut(part)]
    return [*chunks, *cutting.finish()]


def sequences(chunks: list[RawChunk]) -> list[tuple[Any, list[float], float]]:
    """Name, steps and label of each; sees that chunks say rightly what goes on."""
    found: list[tuple[Any, list[float], float]] = []
    open_before = False
    for chunk in chunks:
        assert chunk.continues == open_before
        steps, labels = chunk.steps["x"], chunk.values["y"]
        assert isinstance(steps, list)
        assert isinstance(labels, list)
        for place, name in enumerate(chunk.names.to_pylist()):
            values = steps[0][chunk.offsets[place] : chunk.offsets[place + 1]].to_pylist()
            assert values
            if place == 0 and chunk.continues:
                assert found[-1][0] == name
                assert found[-1][2] == labels[0][place].as_py()
                found[-1][1].extend(values)
            else:
                found.append((name, values, labels[0][place].as_py()))
        open_before = chunk.goes_on
    assert not open_before
    return found


@given(rows=ROWS, ends=ENDS)
def test_sequences_are_runs_of_one_key_wherever_batches_end(rows: list[tuple[int, int]], ends: list[int]) -> None:
    expected = [
        (key, [float(number) for number, _ in group], float(key))
        for key, group in groupby(enumerate(rows), key=lambda row: row[1][0])
    ]
    assert sequences(cut(cutter(), batches(rows, ends))) == expected


@given(rows=ROWS, ends=ENDS)
def test_of_rows_with_one_order_the_first_stays_and_the_others_are_counted(
    rows: list[tuple[int, int]], ends: list[int]
) -> None:
    cutting = cutter(duplicates="first")
    found = sequences(cut(cutting, batches(rows, ends)))
    firsts = {row: number for number, row in reversed(list(enumerate(rows)))}
    assert [value for _, values, _ in found for value in values] == sorted(firsts.values())
    assert [name for name, _, _ in found] == sorted({key for key, _ in rows})
    assert cutting.duplicates == len(rows) - len(firsts)


@given(rows=ROWS, ends=ENDS)
def test_rows_with_one_order_are_an_error_unless_said_otherwise(rows: list[tuple[int, int]], ends: list[int]) -> None:
    again = next((row for before, row in pairwise(rows) if before == row), None)
    if again is None:
        assert len(sequences(cut(cutter(duplicates="error"), batches(rows, ends)))) == len({key for key, _ in rows})
        return
    with pytest.raises(ComplaintError, match=f"twice {again[0]} {again[1]}"):
        cut(cutter(duplicates="error"), batches(rows, ends))


@given(rows=ROWS, ends=ENDS, data=st.data())
def test_a_label_that_changes_in_its_sequence_is_an_error(
    rows: list[tuple[int, int]], ends: list[int], data: st.DataObject
) -> None:
    shared = [number for number, row in enumerate(rows) if sum(key == row[0] for key, _ in rows) > 1]
    if not shared:
        return
    changed = data.draw(st.sampled_from(shared))
    labelled = [(*row, -1.0 if number == changed else float(row[0])) for number, row in enumerate(rows)]
    with pytest.raises(ComplaintError, match=f"changes {rows[changed][0]} y"):
        cut(cutter(), batches(labelled, ends))


@given(rows=ROWS, ends=ENDS)
def test_without_a_key_everything_is_one_sequence(rows: list[tuple[int, int]], ends: list[int]) -> None:
    constant = [(*row, 3.0) for row in rows]
    found = sequences(cut(cutter(keyed=False, ordered=False), batches(constant, ends)))
    assert found == ([(7, [float(number) for number in range(len(rows))], 3.0)] if rows else [])


@pytest.mark.parametrize(("row", "alias"), [((None, 1, 0.0), "s"), ((1, None, 0.0), "o")])
def test_a_row_without_its_key_or_order_is_an_error(row: tuple[Any, ...], alias: str) -> None:
    with pytest.raises(ComplaintError, match=f"no {alias}"):
        cut(cutter(), batches([(0, 0, 0.0), row], []))


def test_missing_values_and_nan_equal_themselves() -> None:
    left = pa.array([1.0, None, float("nan"), None, 1.0, float("nan")])
    right = pa.array([1.0, None, float("nan"), 2.0, 2.0, 1.0])
    assert differ(left, right).tolist() == [False, False, False, True, True, True]
    whole = pa.array([1.0, float("nan")]), pa.array([2.0, float("nan")])
    assert differ(*whole).tolist() == [True, False]
