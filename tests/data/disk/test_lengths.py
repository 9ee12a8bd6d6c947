"""Lengths lie in a file that NumPy reads, and are mapped if it is the file that the manifest means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.disk.lengths import HEADER_BYTES, lengths_bytes, map_lengths, npy_header
from lowtide.errors import LowtideError


def written(path: Path, lengths: list[int]) -> Path:
    path.write_bytes(npy_header(len(lengths)) + np.array(lengths, "<i8").tobytes())
    return path


@given(st.lists(st.integers(0, 1 << 60), max_size=9))
def test_lengths_are_an_array_that_numpy_reads(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    path = written(tmp_path_factory.getbasetemp() / "lengths.npy", lengths)
    assert np.load(path).tolist() == map_lengths(path, len(lengths)).tolist() == lengths
    assert path.stat().st_size == lengths_bytes(len(lengths))


@given(st.integers(0, 1 << 61))
def test_the_head_has_the_same_size_for_any_count(count: int) -> None:
    assert len(npy_header(count)) == HEADER_BYTES


@pytest.mark.parametrize("count", [1, 3, 1 << 61])
def test_the_lengths_of_another_number_of_sequences_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(LowtideError, match="damaged: it has not the size"):
        map_lengths(written(tmp_path / "a", [4, 5]), count)


@given(st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_another_head_is_refused(tmp_path_factory: pytest.TempPathFactory, place: int, change: int) -> None:
    path = written(tmp_path_factory.getbasetemp() / "lengths.npy", [4, 5])
    content = bytearray(path.read_bytes())
    content[place] ^= change
    path.write_bytes(content)
    with pytest.raises(LowtideError, match="damaged: it does not begin like"):
        map_lengths(path, 2)


def test_no_file_and_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(written(tmp_path / "a", [4, 5]))
    for name in ("none", "link"):
        with pytest.raises(LowtideError, match="damaged"):
            map_lengths(tmp_path / name, 2)
