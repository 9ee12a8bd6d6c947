"""CSV files are read as they are meant, or refused with the file, the line and the column."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.data.ingesting_cases import content, quietly, refused

ASKED: dict[str, Any] = {"sequence": "u", "order": "t", "inputs": "x"}
MANY = "".join(f"{row % 7},{row},2.5\n" for row in range(25_000))
"""More rows than types are guessed from."""


def write(folder: Path, text: str | bytes, name: str = "a.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_separators_line_ends_quotes_and_marks_are_found(tmp_path: Path, separator: str, ends: str) -> None:
    lines = ["\ufeffu;t;x", '"a, b";1;2', '"a ""b""";1;"3"', "", '"a, b";2;4']
    path = write(tmp_path, ends.join(lines).replace(";", separator) + ends)
    if separator == ",":
        path.write_text(path.read_text().replace('"a, b"', '"a, b"'))
    assert content(quietly(path, tmp_path / "store", **ASKED)) == {"a, b": {"x": [2.0, 4.0]}, 'a "b"': {"x": [3.0]}}


def test_columns_are_found_by_name_in_files_of_other_orders(tmp_path: Path) -> None:
    write(tmp_path, "u,t,x\n1,1,10\n", "a.csv")
    write(tmp_path, "x;unused;t;u\n20;z;2;1\n", "b.csv")
    write(tmp_path, "u,t,x\n1,3,30\n", "c.csv")
    assert content(quietly(tmp_path, tmp_path / "store", **ASKED)) == {1: {"x": [10.0, 20.0, 30.0]}}
    assert content(quietly(tmp_path, tmp_path / "store", sequence="u", inputs="x")) == {1: {"x": [10.0, 20.0, 30.0]}}


@pytest.mark.parametrize("text", ["NA", "", "nan", "NULL"])
def test_text_for_missing_values_is_missing(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, f"u,t,x\n1,2,{text}\n1,3,4\n")
    with refused(tmp_path, "a.csv, row 1 after the header", "column 'x'", "missing"):
        quietly(path, tmp_path / "store", **ASKED)
    assert content(quietly(path, tmp_path / "store", **ASKED, missing=5)) == {1: {"x": [5.0, 4.0]}}


def test_other_text_for_missing_values_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n1,1,2\n1,2,-\n")
    with refused(tmp_path, "'x' is '-' here and '2' elsewhere"):
        quietly(path, tmp_path / "store", **ASKED)
    found = quietly(path, tmp_path / "store", **ASKED, missing_text=["-"], missing="forward")
    assert content(found) == {1: {"x": [2.0, 2.0]}}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("line", "found"), [("7,3", "2 values"), ("7,3,4,5", "4 values"), ("7", "1 values")])
def test_a_line_with_another_number_of_values_is_named(tmp_path: Path, line: str, found: str, *, many: bool) -> None:
    rows = MANY if many else "1,1,1\n"
    path = write(tmp_path, f"u,t,x\n{rows}{line}\n8,1,2\n")
    with refused(tmp_path, f"{path}, line {rows.count(chr(10)) + 2}", found, "3 columns"):
        quietly(path, tmp_path / "store", **ASKED)


@pytest.mark.parametrize("column", ["x", "u"])
def test_a_value_of_another_type_far_down_is_named(tmp_path: Path, column: str) -> None:
    odd = {"x": "1,99999,abc", "u": "abc,99999,1"}[column]
    place = {"x": "line 25002", "u": "row 25001 after the header"}[column]
    path = write(tmp_path, f"u,t,x\n{MANY}{odd}\n")
    with refused(tmp_path, f"{path}, {place}, column '{column}'", "'abc' is no"):
        quietly(path, tmp_path / "store", **ASKED)


def test_numbers_and_text_that_mix_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n1,1,2\n1,2,abc\n1,3,4\n")
    with refused(tmp_path, f"{path}, row 2 after the header", "'x' is 'abc' here and '2' elsewhere", '"category"'):
        quietly(path, tmp_path / "store", **ASKED)
    store = quietly(path, tmp_path / "store", **ASKED, dtypes={"x": "category"})
    assert (store.vocabulary("x"), content(store)) == (["2", "abc", "4"], {1: {"x": [0, 1, 2]}})


def test_whole_numbers_that_turn_out_to_have_fractions_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n" + MANY.replace("2.5", "2") + "99,1,2.5\n")
    assert content(quietly(path, tmp_path / "store", **ASKED))[99] == {"x": [2.5]}


def test_keys_that_turn_out_to_be_text_can_be_said_to_be(tmp_path: Path) -> None:
    path = write(tmp_path, f"u,t,x\n{MANY}abc,1,1\n")
    assert len(quietly(path, tmp_path / "store", **ASKED, dtypes={"u": "text"})) == 8


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-be", "shift_jis", "utf-8-sig"])
def test_encodings_are_read_when_they_are_named(tmp_path: Path, encoding: str) -> None:
    name = "東京" if encoding == "shift_jis" else "José"
    path = write(tmp_path, f"u,t,x\n{name},1,2\nb,3,4\n", encoding=encoding)
    store = quietly(path, tmp_path / "store", **ASKED, encoding=encoding)
    assert content(store) == {name: {"x": [2.0]}, "b": {"x": [4.0]}}


def test_errors_in_files_of_other_encodings_name_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, f"u,t,x\n{MANY}é,3\n", encoding="cp1252")
    with refused(tmp_path, f"{path}, line 25002", "2 values"):
        quietly(path, tmp_path / "store", **ASKED, encoding="cp1252", dtypes={"u": "text"})
    path = write(tmp_path, "u,t,x\n" + "é,3,1\n" * 4, encoding="cp1252")
    with refused(tmp_path, str(path), "shift_jis"):
        quietly(path, tmp_path / "store", **ASKED, encoding="shift_jis")


@pytest.mark.parametrize("far", [1, 200_000])
def test_bytes_of_another_encoding_are_named(tmp_path: Path, far: int) -> None:
    path = write(tmp_path, "u,t,x\n" + "".join(f"a,{row},1\n" for row in range(far)) + "José,1,2\n", encoding="cp1252")
    with refused(tmp_path, str(path), f"line {far + 2}", 'encoding="cp1252"'):
        quietly(path, tmp_path / "store", **ASKED)


def test_utf16_is_known_by_its_mark(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n1,1,1\n", encoding="utf-16")
    with refused(tmp_path, str(path), 'encoding="utf-16"'):
        quietly(path, tmp_path / "store", **ASKED)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "0 bytes"),
        ("\n \n", "empty lines"),
        ("u,t,x\n", "a header and no row"),
        ("u,t,t,x\n1,2,3,4\n", "'t' twice"),
        ("1,2,3\n4,5,6\n", "no column 't'"),
        ('u,t,x\n"a,1,2\nb,3,4\n', 'has no " at its end'),
    ],
)
def test_files_that_are_no_tables_are_refused(tmp_path: Path, text: str, told: str) -> None:
    path = write(tmp_path, text)
    with refused(tmp_path, str(path), told):
        quietly(path, tmp_path / "store", **ASKED)


def test_a_file_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    write(tmp_path, "u,t,x\n1,1,1\n", "a.csv")
    path = write(tmp_path, "u,t\n1,2\n", "b.csv")
    with refused(tmp_path, f"{path} has no column 'x'"):
        quietly(tmp_path, tmp_path / "store", **ASKED)


def test_packed_files_are_read_and_broken_ones_named(tmp_path: Path) -> None:
    packed = gzip.compress(f"u,t,x\n{MANY}".encode())
    path = write(tmp_path, packed, "a.csv.gz")
    assert quietly(path, tmp_path / "store", **ASKED).lengths.sum() == 25_000
    path = write(tmp_path, packed[: len(packed) // 2], "b.csv.gz")
    with refused(tmp_path, str(path)):
        quietly(path, tmp_path / "store", **ASKED)


def test_a_decimal_comma_is_read_when_it_is_named_and_refused_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path, "u;t;x\n1;1;3,5\n1;2;4,25\n")
    with refused(tmp_path, "'3,5'", 'decimal=","'):
        quietly(path, tmp_path / "store", **ASKED)
    assert content(quietly(path, tmp_path / "store", **ASKED, decimal=",")) == {1: {"x": [3.5, 4.25]}}


def test_dates_are_ordered_as_dates(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n1,01/02/2024,1\n1,31/01/2024,0\n1,15/02/2024,2\n")
    assert content(quietly(path, tmp_path / "store", **ASKED)) == {1: {"x": [0.0, 1.0, 2.0]}}


def test_numbers_with_leading_zeros_stay_different_names(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n007,1,1\n7,1,2\n")
    assert content(quietly(path, tmp_path / "store", **ASKED)) == {"007": {"x": [1.0]}, "7": {"x": [2.0]}}


def test_tables_called_txt_are_read_where_columns_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "u\tt\tx\n1\t1\t5\n", "a.txt")
    assert content(quietly(path, tmp_path / "store", **ASKED)) == {1: {"x": [5.0]}}


@pytest.mark.parametrize("text", [",u,t,x\n0,1,1,2\n1,1,2,3\n", "u,t,x,\n1,1,2,\n1,2,3,\n"])
def test_a_column_without_a_name_is_let_be(tmp_path: Path, text: str) -> None:
    assert content(quietly(write(tmp_path, text), tmp_path / "store", **ASKED)) == {1: {"x": [2.0, 3.0]}}


def test_a_longer_line_among_the_first_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x\n1,1,1\n1,2,3,4\n")
    with refused(tmp_path, f"{path}, line 3: 4 values where the header has 3 columns"):
        quietly(path, tmp_path / "store", **ASKED)


def test_columns_that_differ_by_case_alone_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "u,t,x,X\n1,1,1,2\n")
    with refused(tmp_path, "'x' and 'X', which differ by case alone"):
        quietly(path, tmp_path / "store", **ASKED)
