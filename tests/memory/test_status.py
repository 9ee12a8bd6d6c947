"""A reading tells what a process holds, by what the kernel can do about it."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from lowtide.errors import UnsupportedError
from lowtide.memory import read_status
from tests.memory.pages import MIB, SLACK, touch

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be set back")


@linux
def test_the_kernels_own_pages_are_those_of_page_tables_and_stacks() -> None:
    before = read_status().kernel
    held = touch(64 * MIB)  # an entry of 8 bytes for each page of 4 KiB
    grown = read_status().kernel - before
    held.close()
    assert grown >= 0
    assert before >= 16 * 1024
    assert grown <= 64 * MIB // 512 + 64 * 1024


@linux
def test_what_cannot_be_taken_back_is_private_and_shared_memory() -> None:
    before = read_status().unreclaimable
    private, shared = touch(16 * MIB), touch(24 * MIB, shared=True)
    held = read_status().unreclaimable - before
    private.close()
    shared.close()
    assert abs(held - 40 * MIB) <= SLACK


@linux
def test_data_counts_address_space_that_was_never_touched() -> None:
    before = read_status().data
    block = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert read_status().data - before >= 64 * MIB
    block.close()


def test_elsewhere_it_says_that_linux_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="darwin"):
        read_status()


@linux
def test_a_kernel_that_does_not_tell_files_from_the_rest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Name:\tpython\nVmSize:\t100 kB\nVmRSS:\t50 kB\n")
    with pytest.raises(UnsupportedError, match="RssAnon"):
        read_status(proc=tmp_path)
