"""JSON files are read as they are meant, or refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
ROWS = [{"u": "a", "t": 2, "x": 1}, {"t": 1, "u": "a", "x": 0.5, "more": {"deep": [1]}}]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_lines_and_arrays_of_objects_are_read(tmp_path: Path) -> None:
    expected = {"a": {"x": [0.5, 1.0]}}
    path = write(tmp_path, *(json.dumps(row) for row in ROWS))
    assert content(quietly(path, tmp_path / "store", **ASKED)) == expected
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=1))
    assert content(quietly(tmp_path / "a.json", tmp_path / "store", **ASKED)) == expected


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(ROWS[0]), '{"u": "a", "t": 3')
    with refused(tmp_path, str(path), "line 2"):
        quietly(path, tmp_path / "store", **ASKED)


def test_a_value_of_another_type_far_down_is_named(tmp_path: Path) -> None:
    good = [json.dumps({"u": "a", "t": t, "x": 1.0}) for t in range(25_000)]
    path = write(tmp_path, *good, '{"u": "a", "t": 99999, "x": "abc"}')
    with refused(tmp_path, str(path), "line 25001", "abc"):
        quietly(path, tmp_path / "store", **ASKED)


def test_a_key_that_is_not_there_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(ROWS[0]), '{"u": "a", "t": 3}')
    with refused(tmp_path, f"{path}, row 2", "column 'x'", "missing"):
        quietly(path, tmp_path / "store", **ASKED)
    assert content(quietly(path, tmp_path / "store", **ASKED, missing="forward")) == {"a": {"x": [1.0, 1.0]}}


def test_json_is_utf8(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(ROWS[0]))
    with refused(tmp_path, "RFC 8259"):
        quietly(path, tmp_path / "store", **ASKED, encoding="cp1252")
