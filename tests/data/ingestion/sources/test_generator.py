"""Sequences from Python come into the store as they were given, or are refused by number and name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.data.ingestion.sources import generator
from tests.data.ingesting_cases import content, dropped, quietly, refused

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any)


@settings(max_examples=30)
@given(lengths=LENGTHS, chunk=st.sampled_from([16, 100, 1 << 20]), per_step=st.booleans())
def test_sequences_of_any_lengths_come_back_whatever_is_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], chunk: int, *, per_step: bool
) -> None:
    def sequences() -> Iterator[dict[str, Any]]:
        for number, length in enumerate(lengths):
            x = np.arange(length * 2, dtype=np.float64).reshape(length, 2) + 100 * number
            yield {"id": f"s{number}", "x": x, "y": x[:, 0] if per_step else number}

    # Without a first sequence that has steps, targets could not be told from labels.
    asked: dict[str, Any] = {"inputs": "x", "target" if per_step else "label": "y"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "_CHUNK_BYTES", chunk)
        store = quietly(sequences, tmp_path_factory.mktemp("made") / "store", **asked)
    expected = {
        item["id"]: {"x": item["x"].tolist(), "y": np.asarray(item["y"], dtype=np.float32).tolist()}
        for item in sequences()
        if len(item["x"])
    }
    assert content(store) == expected
    assert sum(dropped(store).values()) == lengths.count(0)


def test_inputs_and_targets_are_known_by_default(tmp_path: Path) -> None:
    made = [{"id": 3, "x": [[1, 2], [3, 4]], "y": [0, 1]}, {"id": 5, "x": [[5, 6]], "y": [1]}]
    store = quietly(iter(made), tmp_path / "store")
    assert content(store) == {
        3: {"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0.0, 1.0]},
        5: {"x": [[5.0, 6.0]], "y": [1.0]},
    }
    assert [field.per for field in store.schema.fields] == ["step", "step"]
    store = quietly([{"x": [1, 2, 3], "y": "cat"}, {"x": [4], "y": "dog"}], tmp_path / "labels")
    assert content(store) == {0: {"x": [1.0, 2.0, 3.0], "y": 0}, 1: {"x": [4.0], "y": 1}}
    assert store.vocabulary("y") == ["cat", "dog"]


def test_fields_can_be_named_and_put_side_by_side(tmp_path: Path) -> None:
    made = [{"a": [1.0, 2.0], "b": [3.0, 4.0], "shop": ["n", "s"], "size": [7, 8], "late": True}]
    store = quietly(
        made,
        tmp_path / "store",
        inputs={"x": ["a", "b"], "shop": "shop"},
        static="size",
        label="late",
        dtypes={"y": "int8"},
    )
    assert content(store) == {0: {"x": [[1.0, 3.0], [2.0, 4.0]], "shop": [0, 1], "static": [7.0, 8.0], "y": 1}}


def test_a_list_of_one_array_gives_an_axis_of_features(tmp_path: Path) -> None:
    store = quietly([{"x": [1.0, 2.0]}, {"x": [3.0]}], tmp_path / "store", inputs=["x"])
    assert content(store) == {0: {"x": [[1.0], [2.0]]}, 1: {"x": [[3.0]]}}


def test_bfloat16_labels_and_steps_are_stored(tmp_path: Path) -> None:
    store = quietly([{"x": [1.0, 2.5], "y": 0.5}], tmp_path / "store", dtypes="bfloat16")
    assert content(store) == {0: {"x": [1.0, 2.5], "y": 0.5}}


GOOD = {"id": "a", "x": np.ones((3, 2)), "y": np.ones(3)}


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ((1, 2), ["sequence 1", "tuple", "mappings"]),
        ({"id": "b", "x": np.ones((3, 2))}, ["sequence 1", "'id', 'x'"]),
        ({**GOOD, "id": "b", "z": 1}, ["sequence 1", "'z'"]),
        ({**GOOD, "id": 7}, ["sequence 1", "called 7, a int"]),
        ({**GOOD, "id": "b", "x": np.ones((3, 3))}, ["sequence 1", "(3, 3)", "(steps, 2)"]),
        ({**GOOD, "id": "b", "x": np.ones(3)}, ["sequence 1", "(3,)"]),
        ({**GOOD, "id": "b", "y": np.ones(2)}, ["sequence 1 ('b')", "'y' has 2 steps", "others have 3"]),
        ({**GOOD, "id": "b", "x": [[1, 2], [3]]}, ["sequence 1", "'x' is no array"]),
        ({**GOOD, "id": "b", "x": np.full((3, 2), np.nan)}, ["sequence 1 ('b')", "'x0'", "step 0", "missing"]),
        ({**GOOD, "id": "b", "x": np.full((3, 2), 1e39)}, ["sequence 1 ('b')", "does not fit float32"]),
        ({**GOOD, "id": "b", "x": np.full((3, 2), "a")}, ["sequence 1", "of type <U1"]),
        (GOOD, ["2 sequences are called 'a'"]),
    ],
)
def test_a_sequence_that_does_not_fit_is_named(tmp_path: Path, second: Any, told: list[str]) -> None:  # noqa: ANN401 - anything
    with refused(tmp_path, *told):
        quietly(iter([GOOD, second]), tmp_path / "store")


def test_a_fault_far_into_a_long_sequence_is_named_by_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_CHUNK_BYTES", 64)
    x = np.arange(100.0)
    x[71] = np.nan
    with refused(tmp_path, "sequence 1 ('b') of the generator, 'x', step 71"):
        quietly(iter([{"id": "a", "x": [0.0]}, {"id": "b", "x": x}]), tmp_path / "store")


@pytest.mark.parametrize(
    ("first", "asked", "told"),
    [
        ({"x": [1.0], "w": [2.0]}, {}, ["'w'", "nothing says what that is"]),
        ({"x": [1.0]}, {"inputs": "z"}, ["'z' was asked for"]),
        ({"x": [1.0]}, {"sequence": "name"}, ["no 'name'"]),
        ({"x": [1.0], "y": 1}, {"inputs": "x", "target": "y"}, ["()", 'label="y"']),
        ({"x": [[[1.0]]]}, {}, ["(1, 1, 1)"]),
        ({"x": [["a", "b"]]}, {}, ["text"]),
        ({"x": [1.0]}, {"dtypes": {"z": "int8"}}, ["dtypes= names 'z'"]),
        ({"x": [1.0]}, {"dtypes": "float8"}, ["'float8'"]),
    ],
)
def test_what_is_asked_for_must_be_there(
    tmp_path: Path, first: dict[str, Any], asked: dict[str, Any], told: list[str]
) -> None:
    with refused(tmp_path, *told):
        quietly([first], tmp_path / "store", **asked)


def test_a_source_that_gives_nothing_is_an_error(tmp_path: Path) -> None:
    with refused(tmp_path, "gave no sequence"):
        quietly(iter([]), tmp_path / "store")
    with refused(tmp_path, "dropped 1 sequences without a step"):
        quietly([{"x": np.ones((0, 2))}], tmp_path / "store")
    with refused(tmp_path, "a int"):
        quietly(5, tmp_path / "store")


def test_an_error_of_the_generator_itself_comes_through_and_leaves_no_store(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield {"x": [1.0]}
        message = "my own"
        raise ZeroDivisionError(message)

    with pytest.raises(ZeroDivisionError, match="my own"):
        quietly(broken, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_name_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    with refused(tmp_path, f"is called {2**70}", "str(name)"):
        quietly([{"id": 2**70, "x": [1.0]}], tmp_path / "store")
