"""The growth of a block is what it held at its highest, wherever memory stood before."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from lowtide.errors import LowtideError, UnsupportedError
from lowtide.memory import growth, read_status
from tests.memory.pages import MIB, SLACK, touch

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be set back")


@linux
def test_growth_is_the_peak_inside_the_block_though_it_was_given_back() -> None:
    with growth() as measured:
        touch(48 * MIB).close()
        touch(16 * MIB).close()
    assert abs(measured.bytes - 48 * MIB) <= SLACK


@linux
def test_an_earlier_and_higher_peak_does_not_count() -> None:
    touch(96 * MIB).close()
    with growth() as measured:
        touch(24 * MIB).close()
    assert abs(measured.bytes - 24 * MIB) <= SLACK


@linux
def test_memory_held_before_the_block_does_not_count() -> None:
    held = touch(64 * MIB)
    with growth() as measured:
        touch(8 * MIB).close()
    held.close()
    assert abs(measured.bytes - 8 * MIB) <= SLACK


@linux
def test_pages_of_a_mapped_file_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"\x01" * (32 * MIB))
    before = read_status()
    with growth() as measured, path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert sum(view[offset] for offset in range(0, len(view), mmap.PAGESIZE)) == len(view) // mmap.PAGESIZE
    during = read_status()
    view.close()
    assert during.file - before.file >= 32 * MIB - SLACK
    assert abs(measured.bytes) <= SLACK


@linux
def test_blocks_inside_and_outside_see_each_their_own_peak() -> None:
    with growth() as outer:
        touch(64 * MIB).close()
        with growth() as inner:
            touch(16 * MIB).close()
    assert abs(outer.bytes - 64 * MIB) <= SLACK
    assert abs(inner.bytes - 16 * MIB) <= SLACK


@linux
def test_the_growth_cannot_be_read_before_the_block_ends() -> None:
    with growth() as measured, pytest.raises(LowtideError, match="before its block ended"):
        _ = measured.bytes


def test_elsewhere_it_says_that_linux_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="darwin"), growth():
        pass
