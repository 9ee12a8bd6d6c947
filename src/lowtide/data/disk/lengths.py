"""The file of all sequences' lengths: a NumPy array that is mapped, never loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.files import plain_size
from lowtide.data.disk.manifest import damaged

LENGTHS = "lengths.npy"
HEADER_BYTES = 128


def npy_header(count: int) -> bytes:
    """The head of a .npy file of whole numbers, of the same size for any count (NumPy's format 1.0)."""
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}"
    head = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return head + text.encode().ljust(HEADER_BYTES - 11) + b"\n"


def lengths_bytes(count: int) -> int:
    """The size of the file for this many sequences."""
    return HEADER_BYTES + 8 * count


def map_lengths(path: Path, count: int) -> NDArray[np.int64]:
    """Map the lengths of this many sequences.

    Raises:
        LowtideError: The file is not that of so many.
    """
    if plain_size(path) != lengths_bytes(count):
        raise damaged(path, f"it has not the size of {count} lengths")
    with path.open("rb") as file:
        if file.read(HEADER_BYTES) != npy_header(count):
            raise damaged(path, f"it does not begin like an array of {count} lengths")
    return np.memmap(path, dtype="<i8", mode="r", offset=HEADER_BYTES, shape=(count,))
