"""What files of one table have in common, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lowtide.data.ingestion.sources.table import check_types, names_of, rows_guessed
from lowtide.errors import LowtideError

A, B = Path("a"), Path("b")


def test_numbers_of_several_types_and_columns_of_nothing_belong_together() -> None:
    check_types([A, B], [{"x": pa.int8()}, {"x": pa.float64()}])
    check_types([A, B], [{"x": pa.null()}, {"x": pa.string()}])
    check_types([A, B], [{"x": pa.string()}, {"x": pa.null()}])


@pytest.mark.parametrize("between", [[], [{"x": pa.null()}]])
def test_numbers_and_text_do_not(between: list[dict[str, pa.DataType]]) -> None:
    types = [{"x": pa.null()}, {"x": pa.int8()}, *between, {"x": pa.string()}]
    with pytest.raises(LowtideError, match="as string, and 1 has it as int8"):
        check_types([Path(str(number)) for number in range(len(types))], types)


@pytest.mark.parametrize("first", [True, False])
def test_a_file_that_lacks_a_column_does_not(*, first: bool) -> None:
    types = [{"x": pa.int8()}, {"x": pa.int8(), "y": pa.int8()}]
    with pytest.raises(LowtideError, match="a has no column 'y', which b has"):
        check_types([A, B] if first else [B, A], types if first else types[::-1])


def test_files_are_called_as_shortly_as_tells_them_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "one" / "a.csv", tmp_path / "two" / "a.csv"]
    assert names_of(paths) == ["one/a.csv", "two/a.csv"]
    assert names_of(paths[:1]) == ["a.csv"]


def test_rows_are_guessed_from_the_beginning_of_the_largest_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 999)
    (tmp_path / "b.csv").write_text("x\n1\n")
    assert rows_guessed([tmp_path / "b.csv", tmp_path / "a.csv"]) == 1002
