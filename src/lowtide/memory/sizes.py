"""How sizes are written for people."""

from __future__ import annotations

_STEP = 1024


def in_words(size: int) -> str:
    """Bytes with a unit, to three digits or more: 512 bytes, 1.50 KiB, 23.4 GiB."""
    if abs(size) < _STEP:
        return f"{size} byte" if abs(size) == 1 else f"{size} bytes"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= _STEP
        if abs(value) < _STEP or unit == "TiB":
            break
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0  # noqa: PLR2004 - three digits in all
    return f"{value:.{digits}f} {unit}"
