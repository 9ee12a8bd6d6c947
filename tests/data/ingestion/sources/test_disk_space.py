"""Room on the disk is looked for before an ingest begins."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from lowtide.data.ingestion.sources.disk_space import check_disk
from lowtide.errors import LowtideError
from tests.data.ingesting_cases import long_table, quietly, refused

Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil's own


@pytest.mark.parametrize(
    ("stored", "in_sort", "fits"), [(0, 0, True), (30 << 20, 6 << 20, True), (30 << 20, 7 << 20, False)]
)
def test_what_is_stored_and_sorted_has_to_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int, in_sort: int, *, fits: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 0, 100 << 20))
    if fits:
        check_disk(tmp_path, stored=stored, sorted_bytes=in_sort)
        return
    with pytest.raises(LowtideError, match=r"104\.9 MB free; the store needs about 31\.5 MB, and sorting 7\.3 MB"):
        check_disk(tmp_path, stored=stored, sorted_bytes=in_sort)


def test_an_ingest_without_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 0, 64 << 20))
    with refused(tmp_path, f"{tmp_path / 'store'} is on a disk with 67.1 MB free"):
        quietly(long_table(3, 3), tmp_path / "store", sequence="u", order="t", inputs="x")
