"""Arrays of every shape become the sequences that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide.data.ingestion.sources import arrays, generator
from tests.data.ingesting_cases import content, quietly, refused

CUBE = np.arange(24.0).reshape(2, 4, 3)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (np.arange(3), {0: {"x": [0.0, 1.0, 2.0]}}),
        (np.arange(4).reshape(2, 2), {0: {"x": [[0.0, 1.0], [2.0, 3.0]]}}),
        (CUBE, {0: {"x": CUBE[0].tolist()}, 1: {"x": CUBE[1].tolist()}}),
        (CUBE[:, :, ::-1], {0: {"x": CUBE[0, :, ::-1].tolist()}, 1: {"x": CUBE[1, :, ::-1].tolist()}}),
        ([np.ones((2, 1)), np.zeros((1, 1))], {0: {"x": [[1.0], [1.0]]}, 1: {"x": [[0.0]]}}),
        ({"x": np.arange(2), "y": np.arange(2)}, {0: {"x": [0.0, 1.0], "y": [0.0, 1.0]}}),
        ({"x": CUBE[:, :1], "y": np.array([5, 6])}, {0: {"x": [[0, 1, 2]], "y": 5}, 1: {"x": [[12, 13, 14]], "y": 6}}),
        ({"x": CUBE[:, :1], "id": np.array([7, 9])}, {7: {"x": [[0, 1, 2]]}, 9: {"x": [[12, 13, 14]]}}),
        ({"x": CUBE[:, :1], "id": ["p", "q"]}, {"p": {"x": [[0, 1, 2]]}, "q": {"x": [[12, 13, 14]]}}),
        ({"x": [np.ones(2), np.ones(1)], "y": [3, 4]}, {0: {"x": [1.0, 1.0], "y": 3.0}, 1: {"x": [1.0], "y": 4.0}}),
    ],
)
def test_arrays_become_sequences(tmp_path: Path, source: Any, expected: dict[Any, Any]) -> None:  # noqa: ANN401 - arrays
    assert content(quietly(source, tmp_path / "store")) == expected


def test_padding_is_left_out_where_lengths_are_given(tmp_path: Path) -> None:
    source = {"x": CUBE, "y": np.arange(8).reshape(2, 4), "lengths": np.array([1, 3])}
    assert content(quietly(source, tmp_path / "store")) == {
        0: {"x": CUBE[0, :1].tolist(), "y": [0.0]},
        1: {"x": CUBE[1, :3].tolist(), "y": [4.0, 5.0, 6.0]},
    }


def test_a_flat_array_of_sequences_is_said_to_be_one(tmp_path: Path) -> None:
    found = quietly(np.arange(6).reshape(2, 3), tmp_path / "store", layout="list")
    assert content(found) == {0: {"x": [0.0, 1.0, 2.0]}, 1: {"x": [3.0, 4.0, 5.0]}}


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_mapped_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(arrays, "_CHUNK_BYTES", chunk)
    monkeypatch.setattr(generator, "_CHUNK_BYTES", chunk)
    series = np.arange(200, dtype=np.int16).reshape(50, 4)
    np.save(tmp_path / "series.npy", series)
    mapped = np.load(tmp_path / "series.npy", mmap_mode="r")
    assert content(quietly(mapped, tmp_path / "mapped")) == {0: {"x": series.tolist()}}
    assert content(quietly(tmp_path / "series.npy", tmp_path / "file")) == {0: {"x": series.tolist()}}
    np.save(tmp_path / "cube.npy", CUBE)
    assert content(quietly(tmp_path / "cube.npy", tmp_path / "cube")) == {n: {"x": CUBE[n].tolist()} for n in range(2)}


def test_several_files_are_a_sequence_each(tmp_path: Path) -> None:
    for name, count in {"b": 1, "a": 2}.items():
        np.save(tmp_path / f"{name}.npy", np.full((count, 1), count))
    found = quietly(tmp_path, tmp_path / "store")
    assert content(found) == {"a.npy": {"x": [[2.0], [2.0]]}, "b.npy": {"x": [[1.0]]}}
    np.save(tmp_path / "b.npy", np.full((1, 1), np.nan))
    with refused(tmp_path, f"{tmp_path / 'b.npy'}, 'x', step 0", "missing"):
        quietly(str(tmp_path / "*.npy"), tmp_path / "other")


def test_archives_hold_arrays_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=CUBE, y=np.array([1, 2]))
    found = content(quietly(tmp_path / "a.npz", tmp_path / "store"))
    assert found == {n: {"x": CUBE[n].tolist(), "y": n + 1.0} for n in range(2)}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"x": CUBE, "y": np.arange(3)}, ["different numbers of sequences"]),
        ({"x": CUBE, "y": np.ones((2, 5)), "lengths": [1, 1]}, ["'y' has 5 steps"]),
        ({"x": CUBE, "lengths": np.array([1, 5])}, ["lengths[1] is 5"]),
        ({"x": CUBE, "w": np.ones(2)}, ["'w'", "nothing says"]),
        ({"x": [np.ones(2)], "y": [1, 2]}, ["different numbers of sequences"]),
        (np.array([1.0, np.nan]), ["sequence 0 of the arrays, 'x', step 1"]),
        (np.array(5.0), ["()"]),
        (np.array([1 + 1j]), ["of type complex128"]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, source: Any, told: list[str]) -> None:  # noqa: ANN401 - arrays
    asked = {"inputs": "x", "target": "y"} if isinstance(source, dict) and np.ndim(source.get("y", 0)) > 1 else {}
    with refused(tmp_path, *told):
        quietly(source, tmp_path / "store", **asked)


def test_pickles_and_broken_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([None]), allow_pickle=True)
    with refused(tmp_path, f"{tmp_path / 'a.npy'}", "pickles"):
        quietly(tmp_path / "a.npy", tmp_path / "store")
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04nothing")
    with refused(tmp_path, f"{tmp_path / 'b.npz'}"):
        quietly(tmp_path / "b.npz", tmp_path / "store")
    np.save(tmp_path / "c.npy", np.ones(1000))
    (tmp_path / "c.npy").write_bytes((tmp_path / "c.npy").read_bytes()[:500])
    with refused(tmp_path, f"{tmp_path / 'c.npy'}"):
        quietly(tmp_path / "c.npy", tmp_path / "store")


@pytest.mark.parametrize("lengths", [np.array([[1], [3]]), np.array([1.0, 3.0])])
def test_lengths_are_one_whole_number_a_sequence(tmp_path: Path, lengths: np.ndarray) -> None:
    with refused(tmp_path, "lengths have the shape"):
        quietly({"x": np.ones((2, 3, 1)), "lengths": lengths}, tmp_path / "store")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((200, 3, 1)))
    data = bytearray(path.read_bytes())
    data[1000:1010] = bytes(10)
    path.write_bytes(data)
    with refused(tmp_path, f"{path} cannot be read"):
        quietly(path, tmp_path / "store")
