"""Temporary files on the disk of the store, for what is needed before the store is begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lowtide.data.disk.files import disk_errors


@contextmanager
def folder_beside(out: Path) -> Iterator[Path]:
    """A hidden folder beside a store that need not be there yet; it goes with all that is in it.

    Raises:
        LowtideError: It cannot be made.
    """
    place = next(parent for parent in out.absolute().parents if parent.is_dir())
    with disk_errors(place):
        made = TemporaryDirectory(dir=place, prefix=".lowtide-")
    with made as folder:
        yield Path(folder)
