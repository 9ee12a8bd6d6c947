"""In a real control group the limit is the group's, and a peak that was measured is what the group must allow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowtide.memory.groups import read_groups
from tests.memory.pages import MIB

JOIN = """
import mmap, os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write(str(os.getpid()))
from lowtide.memory import limit, watch

def train():
    block = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(block), mmap.PAGESIZE):
        block[offset] = 1
    block.close()
"""
LIMIT = JOIN + "found = limit(); print(found.bytes, found.held, found.source, sep='|')"
PEAK = JOIN + "with watch() as peak:\n    train()\nprint(peak.bytes, peak.group_kernel, sep='|')"
KILLED = -9


def where() -> Path | str:
    """The group to make one in; or why that cannot be done."""
    if sys.platform != "linux":
        return "control groups are Linux's"
    groups = [group for group in read_groups("memory") if group.version == 1]
    if not groups:
        return "no memory groups of version 1 are mounted here"
    return groups[0].folder if os.access(groups[0].folder, os.W_OK) else "not allowed to make a group: needs root"


PARENT = where()
pytestmark = pytest.mark.skipif(isinstance(PARENT, str), reason=str(PARENT))


@pytest.fixture
def group() -> Iterator[Path]:
    made = Path(PARENT) / f"lowtide-test-{os.getpid()}"
    made.mkdir()
    yield made
    made.rmdir()


def run_in(group: Path, program: str, *, limit: int) -> subprocess.CompletedProcess[str]:
    (group / "memory.limit_in_bytes").write_text(str(limit))
    return subprocess.run([sys.executable, "-c", program, str(group)], capture_output=True, text=True, check=False)


def test_the_limit_is_the_groups(group: Path) -> None:
    size, held, source = run_in(group, LIMIT, limit=300 * MIB).stdout.split("|")
    assert int(size) <= 300 * MIB
    assert int(size) >= 290 * MIB  # the kernel's own caches for the group are with the others
    assert 0 < int(held) < int(size)
    assert str(group) in source


def test_a_group_that_allows_the_measured_peak_lets_it_live_and_one_that_does_not_kills(group: Path) -> None:
    peak, kernel = run_in(group, PEAK, limit=300 * MIB).stdout.split("|")
    assert 64 * MIB <= int(peak) <= 96 * MIB
    assert int(kernel) > 0
    assert run_in(group, PEAK, limit=int(peak) + 4 * MIB).returncode == 0
    assert run_in(group, PEAK, limit=int(peak) - 8 * MIB).returncode == KILLED
