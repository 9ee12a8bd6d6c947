"""Seeing that the disk has room before an ingest begins, rather than when it is half done."""

from __future__ import annotations

import shutil
from pathlib import Path

from lowtide.data.ingestion.progress import in_bytes
from lowtide.errors import LowtideError

_SPARE = 64 << 20
"""Bytes that are left to others."""


def check_disk(folder: Path, *, stored: int, sorted_bytes: int) -> None:
    """See that what is written, and what is sorted on the way, have room.

    Args:
        folder: On the disk of the store.
        stored: Bytes that the store will have, about.
        sorted_bytes: Bytes that sorting puts there meanwhile.

    Raises:
        LowtideError: They do not.
    """
    free = shutil.disk_usage(folder).free
    if free < stored + sorted_bytes + _SPARE:
        raise LowtideError(
            what=f"{folder.parent.parent} is on a disk with {in_bytes(free)} free; the store needs about "
            f"{in_bytes(stored)}" + (f", and sorting {in_bytes(sorted_bytes)} meanwhile" if sorted_bytes else ""),
            why="a disk that fills up would end the ingest half done",
            fix="free some disk, or name an `out` on a disk with more room",
        )
