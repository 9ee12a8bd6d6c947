"""What does not fit the schema is refused before anything of it is written, by the names of what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lowtide.data import Schema, StoreWriter
from lowtide.data.fields import Array
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA, arrow_rows, sequences


def changed(field: str, array: Array | None) -> dict[str, Array]:
    arrays = dict(sequences([4])[0][1])
    if array is None:
        del arrays[field]
    else:
        arrays[field] = array
    return arrays


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (changed("x", np.zeros((4, 3))), r"'s0'.*'x'.*float64"),
        (changed("x", np.zeros((4, 2), np.float32)), r"'s0'.*'x'.*\(4, 2\)"),
        (changed("code", np.zeros((4, 1), np.int16)), r"'s0'.*'code'.*\(4, 1\)"),
        (changed("code", np.zeros(5, np.int16)), r"'s0'.*'code': 5"),
        (changed("y", np.zeros(4, np.float32)), r"'s0'.*'y'.*float32"),
        (changed("label", None), r"'s0' has no field 'label'"),
        (changed("place", np.zeros(3)), r"'s0'.*'place'.*\(3,\)"),
        (changed("other", np.zeros(3)), r"'s0'.*'other' is not one of the fields"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(tmp_path: Path, arrays: dict[str, Array], said: str) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match=said):
        writer.add("s0", arrays)


def replaced(column: int, array: pa.Array) -> pa.RecordBatch:
    rows = arrow_rows(sequences([2, 1]))
    fields = [rows.schema.field(place).with_type(rows.column(place).type) for place in range(6)]
    fields[column] = fields[column].with_type(array.type)
    columns = [*rows.columns[:column], array, *rows.columns[column + 1 :]]
    return pa.record_batch(columns, schema=pa.schema(fields))


LIST = pa.large_list(pa.int16())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (arrow_rows(sequences([2])).select(["id", "x"]), "the columns are"),
        (replaced(2, pa.array([[1, 2], [3]], pa.large_list(pa.int32()))), "'code' is of type"),
        (replaced(2, pa.array([[1, 2], None], LIST)), "'code' has 1 missing"),
        (replaced(2, pa.array([[1, None], [3]], LIST)), "'code' has 1 missing"),
        (replaced(2, pa.array([[1, 2], [3, 4]], LIST)), "'s1'.*'code' has 2 steps.*'x' has 1"),
        (replaced(0, pa.array(["a", None])), "'id' has 1 missing"),
        (replaced(4, pa.array([1, None], pa.int64())), "'label' has 1 missing"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_column(tmp_path: Path, rows: pa.RecordBatch, said: str) -> None:
    with StoreWriter(tmp_path / "a", SCHEMA) as writer, pytest.raises(LowtideError, match=said):
        writer.add_rows(rows)


@pytest.mark.parametrize(
    ("kind", "name"), [("string", 5), ("int64", "5"), ("int64", 1 << 63), ("string", None), ("string", "\ud800")]
)
def test_names_of_another_type_are_refused(tmp_path: Path, kind: str, name: object) -> None:
    schema = Schema(SCHEMA.fields, kind)  # type: ignore[arg-type]  # one of its two
    with StoreWriter(tmp_path / "a", schema) as writer, pytest.raises(LowtideError, match="is called"):
        writer.add(name, sequences([1])[0][1])  # type: ignore[arg-type]  # on purpose
