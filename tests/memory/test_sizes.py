"""Sizes are written with a unit and three digits."""

from __future__ import annotations

import pytest

from lowtide.memory.sizes import in_words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1536, "1.50 KiB"),
        (10 << 20, "10.0 MiB"),
        (500 << 20, "500 MiB"),
        (1023 << 20, "1023 MiB"),
        (3 << 29, "1.50 GiB"),
        (5000 << 40, "5000 TiB"),
        (-(2 << 30), "-2.00 GiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert in_words(size) == words
