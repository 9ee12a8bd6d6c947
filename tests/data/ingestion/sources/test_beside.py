"""Temporary folders lie on the disk of the store, and go again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.data.ingestion.sources.beside import folder_beside


@pytest.mark.parametrize("out", ["store", "not/there/yet/store"])
def test_a_folder_lies_beside_a_store_that_is_not_there_yet(tmp_path: Path, out: str) -> None:
    with folder_beside(tmp_path / out) as folder:
        assert folder.parent == tmp_path
        (folder / "file").write_text("some")
    assert list(tmp_path.iterdir()) == []


def test_it_goes_when_something_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder_beside(tmp_path / "store"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
