"""The file of all sequences' lengths: a NumPy array that is mapped, never loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.files import plain_size, read_errors
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
        LowtideError: The file is not that of so many, or cannot be read.
    """
    if plain_size(path) != lengths_bytes(count):
        raise damaged(path, f"it has not the size of {count} lengths")
    with read_errors(path), pa.memory_map(str(path)) as mapped:
        content = mapped.read_buffer()  # the mapping stays, no descriptor does
    if content[:HEADER_BYTES].to_pybytes() != npy_header(count):
        raise damaged(path, f"it does not begin like an array of {count} lengths")
    return np.frombuffer(content, dtype="<i8", offset=HEADER_BYTES, count=count)
