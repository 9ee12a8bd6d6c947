"""Fields say how their numbers lie on disk, and refuse what cannot be stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema
from lowtide.data.fields import from_bfloat16, to_bfloat16
from lowtide.errors import LowtideError
from tests.data.store_cases import SCHEMA

FIELD = Field("x", "inputs", "step", "float32", 2)


@pytest.mark.parametrize(
    ("field", "arrow"),
    [
        (FIELD, pa.large_list(pa.list_(pa.float32(), 2))),
        (replace(FIELD, width=0, dtype="float16"), pa.large_list(pa.float16())),
        (replace(FIELD, per="sequence", dtype="int8"), pa.list_(pa.int8(), 2)),
        (replace(FIELD, per="sequence", width=0, dtype="float64"), pa.float64()),
        (replace(FIELD, dtype="bfloat16"), pa.large_list(pa.list_(pa.uint16(), 2))),
    ],
)
def test_a_field_is_one_arrow_column(field: Field, arrow: pa.DataType) -> None:
    assert field.arrow.type == arrow
    assert field.arrow.metadata == ({b"lowtide.dtype": b"bfloat16"} if field.dtype == "bfloat16" else None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "a name"),
        ({"name": "id"}, "names"),
        ({"role": "output"}, "role"),
        ({"per": "day"}, "per 'day'"),
        ({"dtype": "complex64"}, "complex64"),
        ({"width": -1}, "width -1"),
        ({"width": True}, "width True"),
        ({"width": 1 << 40}, "width"),
        ({"columns": ["a"]}, "columns"),
        ({"role": "static"}, "one value per sequence"),
        ({"vocabulary": 3}, "by name"),
    ],
)
def test_what_cannot_be_stored_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        replace(FIELD, **change)


def test_a_schema_has_its_fields_by_role_and_by_name() -> None:
    assert [field.name for field in SCHEMA.inputs] == ["x", "code"]
    assert [field.name for field in SCHEMA.targets] == ["y", "label"]
    assert [field.name for field in SCHEMA.static] == ["place"]
    assert SCHEMA.field("code").vocabulary is None
    with pytest.raises(LowtideError, match="no field is called 'z'"):
        SCHEMA.field("z")


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(LowtideError, match="called 'x'"):
        Schema((FIELD, replace(FIELD, role="targets")), "string")


def test_a_schema_without_steps_is_refused() -> None:
    with pytest.raises(LowtideError, match="values per step"):
        Schema((Field("a", "static", "sequence", "int8", 0),), "string")


def test_a_schema_survives_the_manifest() -> None:
    assert Schema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA


@given(st.lists(st.floats(width=32), min_size=1))
def test_bfloat16_is_the_nearest_and_ties_go_to_even(numbers: list[float]) -> None:
    values = np.array(numbers, dtype=np.float32)
    bits = to_bfloat16(values)
    read = from_bfloat16(bits)
    np.testing.assert_array_equal(np.isnan(read), np.isnan(values))
    for value, code, found in zip(values, bits, read, strict=True):
        neighbours = from_bfloat16(np.array([max(int(code) - 1, 0), min(int(code) + 1, 0xFFFF)], dtype=np.uint16))
        for other in neighbours[np.isfinite(neighbours)]:
            if np.isfinite(value) and np.isfinite(found):
                mine, its = abs(float(found) - float(value)), abs(float(other) - float(value))
                assert mine < its or (mine == its and code % 2 == 0) or other == found


def test_halfway_between_two_bfloat16_the_even_one_is_taken() -> None:
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 2.0**127 * (2 - 2**-8)], dtype=np.float32)
    assert from_bfloat16(to_bfloat16(halves)).tolist() == [1, 1 + 2**-6, -1, np.inf]


def test_every_bfloat16_is_read_exactly() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    read = from_bfloat16(bits)
    numbers = ~np.isnan(read)
    np.testing.assert_array_equal(to_bfloat16(read)[numbers], bits[numbers])
    assert np.isnan(from_bfloat16(to_bfloat16(read[~numbers]))).all()
