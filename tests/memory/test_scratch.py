"""Scratch files lie on a disk that has room for them, and leave nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import lowtide
from lowtide.memory import scratch

RAM = Path("/dev/shm")  # noqa: S108 - a folder in RAM is the point


def test_scratch_is_zeros_that_can_be_written_and_its_file_has_no_name(tmp_path: Path) -> None:
    mapped = scratch.map_scratch(10_000, tmp_path)
    assert mapped[:] == bytes(10_000)
    mapped[5000:5003] = b"low"
    assert mapped[4999:5004] == b"\0low\0"
    assert list(tmp_path.iterdir()) == []
    mapped.close()


@pytest.mark.skipif(sys.platform != "linux" or not RAM.is_dir(), reason="no folder that is known to lie in RAM")
def test_a_folder_in_ram_is_refused() -> None:
    assert scratch.file_system(RAM) == "tmpfs"
    with pytest.raises(lowtide.LowtideError, match="RAM"):
        scratch.map_scratch(10, RAM)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lowtide.LowtideError, match="no such folder"):
        scratch.map_scratch(10, tmp_path / "missing")


def test_too_little_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    with pytest.raises(lowtide.LowtideError, match="free there"):
        scratch.map_scratch(disk.f_bavail * disk.f_frsize + 1, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch, "_claim", full)
    with pytest.raises(lowtide.LowtideError, match="No space left"):
        scratch.map_scratch(10, tmp_path)
    assert list(tmp_path.iterdir()) == []
