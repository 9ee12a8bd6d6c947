"""Files are there whole or not at all, and a full disk is said."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from lowtide.data.disk import files
from lowtide.errors import LowtideError


def test_a_file_is_hashed_while_it_is_written(tmp_path: Path) -> None:
    parts: list[bytes | memoryview] = [b"ebb", memoryview(b"and"), b"", b"flood" * 1000]
    with files.HashedFile(tmp_path / "a") as file:
        for part in parts:
            file.write(part)
        made = file.finish()
    content = b"".join(bytes(part) for part in parts)
    assert (tmp_path / "a").read_bytes() == content
    assert made == files.Digest(len(content), hashlib.sha256(content).hexdigest())
    assert made == files.digest(tmp_path / "a")


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_beside(path, b"old")
    with path.open("rb") as reader:
        files.write_beside(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a"
    files.write_beside(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LowtideError, match="No space left") as caught:
        files.write_beside(path, b"new")
    assert "free some disk" in caught.value.fix
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_that_is_not_a_full_disk_does_not_ask_for_disk() -> None:
    with pytest.raises(LowtideError, match="Read-only") as caught, files.disk_errors(Path("a")):
        raise OSError(errno.EROFS, "Read-only file system")
    assert "free some disk" not in caught.value.fix


def test_only_plain_files_have_a_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"four")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert files.plain_size(tmp_path / "a") == 4
    assert files.plain_size(tmp_path / "link") is None
    assert files.plain_size(tmp_path) is None
    assert files.plain_size(tmp_path / "none") is None
    assert files.plain_size(tmp_path / "a" / "below") is None


def test_what_the_system_does_not_let_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="cannot be read: Permission denied") as caught, files.read_errors(Path("a")):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert "damaged" not in str(caught.value)
    with pytest.raises(LowtideError, match=r"cannot be read: .*too long"):
        files.plain_size(tmp_path / ("a" * 300))
    for read in (files.read_whole, files.digest):
        with pytest.raises(LowtideError, match=r"cannot be read: .*directory"):
            read(tmp_path)
