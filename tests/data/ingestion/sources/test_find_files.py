"""Files are found by path, glob and folder, in one order, and nothing is passed over in silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lowtide.data.ingestion.sources.find_files import Found, find_files
from lowtide.data.ingestion.tally import Tally
from tests.data.ingesting_cases import refused


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def find(sources: object, folder: Path, tally: Tally | None = None) -> Found:
    return find_files(sources, as_format=None, tally=tally or Tally(), without=folder / "store")  # type: ignore[arg-type]


def names(found: Found, folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in found.paths]


def test_paths_globs_and_folders_are_found_in_order_and_once(tmp_path: Path) -> None:
    make(tmp_path, "b.csv", "a.csv", "deep/er/c.CSV", "deep/d.csv.gz")
    expected = ["a.csv", "b.csv", "deep/d.csv.gz", "deep/er/c.CSV"]
    assert names(find(tmp_path, tmp_path), tmp_path) == expected
    assert names(find(str(tmp_path / "*.csv"), tmp_path), tmp_path) == expected[:2]
    assert sorted(names(find(str(tmp_path / "**" / "*.*"), tmp_path), tmp_path)) == sorted(expected)
    several = [tmp_path / "b.csv", str(tmp_path / "*.csv"), tmp_path / "b.csv"]
    assert names(find(several, tmp_path), tmp_path) == ["b.csv", "a.csv"]


def test_a_path_with_glob_marks_that_exists_is_a_path(tmp_path: Path) -> None:
    make(tmp_path, "a[1].csv", "a1.csv")
    assert names(find(tmp_path / "a[1].csv", tmp_path), tmp_path) == ["a[1].csv"]


def test_what_holds_no_data_is_left_aside_and_counted(tmp_path: Path) -> None:
    make(tmp_path, "a.csv", "README", "notes.docx", "more.docx", "_SUCCESS.csv", ".hidden/b.csv", "store/v0001/s.arrow")
    tally = Tally()
    assert names(find(tmp_path, tmp_path, tally), tmp_path) == ["a.csv"]
    assert tally.left_aside == Counter(
        {"files of the folder that end in 'nothing'": 1, "files of the folder that end in '.docx'": 2}
    )


@pytest.mark.parametrize(
    ("made", "sources", "told"),
    [
        ([], "nowhere.csv", "there is no file"),
        ([], "*.csv", "there is no file"),
        (["deep/a.docx"], "deep", "no files were found"),
        (["a.docx"], "a.docx", "'.docx'"),
        (["a.csv", "b.parquet"], "", "several formats"),
    ],
)
def test_what_cannot_be_found_is_an_error(tmp_path: Path, made: list[str], sources: str, told: str) -> None:
    make(tmp_path, *made)
    with refused(tmp_path, told):
        find(str(tmp_path / sources), tmp_path)


def test_an_empty_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    make(tmp_path, "a.csv")
    (tmp_path / "b.csv").touch()
    with refused(tmp_path, str(tmp_path / "b.csv"), "0 bytes"):
        find(tmp_path, tmp_path)


def test_a_format_can_be_said(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.log")
    found = find_files(tmp_path, as_format="text", tally=Tally(), without=tmp_path / "store")
    assert (found.format, names(found, tmp_path)) == ("text", ["a.py", "b.log"])
