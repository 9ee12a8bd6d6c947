"""Arguments that cannot be meant are refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lowtide.data.ingestion.request import byte_size
from tests.data.ingesting_cases import quietly, refused


@pytest.mark.parametrize(
    ("told", "size"),
    [(5, 5), ("5", 5), ("400MB", 400_000_000), ("1GiB", 1 << 30), ("1.5 gib", 3 << 29), ("2k", 2000), ("7 B", 7)],
)
def test_sizes_are_numbers_or_text(told: int | str, size: int) -> None:
    assert byte_size(told) == size


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"memory_limit": "much"}, "'much'"),
        ({"memory_limit": -1}, "-1"),
        ({"memory_limit": "1.2.3GB"}, "'1.2.3GB'"),
        ({"memory_limit": "10MB"}, "301989888"),
        ({"layout": "tall"}, "layout='tall'"),
        ({"duplicates": "drop"}, "duplicates='drop'"),
        ({"horizon": -1}, "horizon=-1"),
        ({"horizon": True}, "horizon=True"),
        ({"encoding": "klingon"}, "encoding='klingon'"),
        ({"sequence": ["a"]}, "sequence=['a']"),
        ({"order": ""}, "order=''"),
        ({"inputs": []}, "inputs=[]"),
        ({"inputs": 5}, "inputs=5"),
        ({"inputs": [5]}, "inputs=[5]"),
        ({"inputs": [["a"], ["a"]]}, "'a' twice"),
        ({"inputs": ["a", "a"]}, "'a' twice"),
        ({"inputs": {"": "a"}}, "by text"),
        ({"target": {"y": []}}, "target=[]"),
        ({"dtypes": 5}, "dtypes=5"),
        ({"dtypes": {"a": 5}}, "dtypes="),
        ({"missing": "dorp"}, "'dorp'"),
        ({"split": {"train": 2.0}}, "2.0"),
        ({"missing": float("inf")}, "inf"),
        ({"missing": {"value": float("nan")}}, "nan"),
        ({"missing_text": "NA"}, "missing_text='NA'"),
        ({"missing_text": [None]}, "missing_text=[None]"),
        ({"decimal": ""}, "decimal=''"),
        ({"shard_bytes": 5}, "shard_bytes is 5"),
        ({"shard_bytes": "some"}, "'some'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    with refused(tmp_path, told):
        quietly([{"x": [1.0]}], tmp_path / "store", **asked)
