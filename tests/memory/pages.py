"""Memory that tests hold: pages that are resident for certain, in this process and in a child."""

from __future__ import annotations

import mmap
import subprocess
import sys

MIB = 1 << 20
SLACK = 4 * MIB
"""The kernel counts pages in batches, one for each core."""


def touch(size: int, *, shared: bool = False) -> mmap.mmap:
    """Memory of no file with every page resident."""
    block = mmap.mmap(-1, size, flags=(mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, mmap.PAGESIZE):
        block[offset] = 1
    return block


HOLDER = """
import mmap, sys
for line in sys.stdin:
    if line == "0\\n":
        open("/proc/self/clear_refs", "w").write("5")
        print(flush=True)
        continue
    size = int(line) << 20
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, mmap.PAGESIZE):
        block[offset] = 1
    block.close()
    print(flush=True)
"""


class Holder:
    """A child that takes memory and gives it back when it is told to."""

    def __init__(self) -> None:
        """Start it."""
        command = [sys.executable, "-S", "-c", HOLDER]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hold(1)

    def measure_itself(self) -> None:
        """Have it set its own mark back, as a child does that watches itself."""
        self.hold(0)

    def hold(self, mebibytes: int) -> None:
        """Have it touch so much and give it back, and wait until it has."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{mebibytes}\n")
        self._child.stdin.flush()
        assert self._child.stdout.readline() == "\n"

    def end(self) -> None:
        """Let it go, and wait."""
        self._child.communicate()
