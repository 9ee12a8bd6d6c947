"""What types are called, by DuckDB and by Arrow, and what that makes of a column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lowtide.data.ingestion.sources.column import column_type, kind_of


@pytest.mark.parametrize(
    ("told", "kind", "depth", "width"),
    [
        ("BIGINT", "number", 0, None),
        ("DECIMAL(18,3)", "number", 0, None),
        ("VARCHAR", "text", 0, None),
        ("ENUM('a[1]', 'b')", "text", 0, None),
        ("TIMESTAMP WITH TIME ZONE", "time", 0, None),
        ("STRUCT(a BIGINT)", "other", 0, None),
        ("DOUBLE[]", "number", 1, None),
        ("FLOAT[3]", "number", 1, None),
        ("DOUBLE[][]", "number", 2, None),
        ("DOUBLE[4][]", "number", 2, 4),
        ("VARCHAR[]", "text", 1, None),
    ],
)
def test_a_type_tells_kind_lists_and_features(told: str, kind: str, depth: int, width: int | None) -> None:
    found = column_type(told)
    assert (found.kind, found.depth, found.width, found.is_list) == (kind, depth, width, depth > 0)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (pa.int8(), "number"),
        (pa.float16(), "number"),
        (pa.decimal128(9, 2), "number"),
        (pa.bool_(), "number"),
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.timestamp("ns", "UTC"), "time"),
        (pa.date32(), "time"),
        (pa.duration("s"), "time"),
        (pa.binary(), "other"),
    ],
)
def test_arrow_calls_types_by_other_names(told: pa.DataType, kind: str) -> None:
    assert kind_of(str(told)) == kind
