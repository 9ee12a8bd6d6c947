"""What this process and its children hold now."""

from __future__ import annotations

from pathlib import Path

from lowtide.errors import UnsupportedError
from lowtide.memory.descendants import held_by_tree
from lowtide.memory.resident import resident_in_tree
from lowtide.memory.status import PROC


def held(*, proc: Path = PROC) -> int:
    """What this process and its children hold now and cannot give back, in bytes.

    Exact on Linux; elsewhere their resident memory, in which pages that several processes share count in each.

    Args:
        proc: Where the proc file system is.
    """
    try:
        return held_by_tree(proc=proc)
    except UnsupportedError:
        return resident_in_tree()
