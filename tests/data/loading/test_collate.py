"""A draft becomes the batch that it describes: each field read, transformed, converted, weighed and padded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.batch import Batch
from lowtide.data.fields import to_bfloat16
from lowtide.data.frameworks import NumPyArrays, TorchArrays
from lowtide.data.loading import collate
from lowtide.data.loading.collate import Collator, augmented
from lowtide.data.loading.drafts import Draft
from lowtide.data.loading.policy import Spans
from lowtide.data.loading.weights import SequenceWeights
from lowtide.data.transforming.affine import Standard
from lowtide.data.transforming.transform import Begun
from lowtide.errors import LowtideError

SCHEMA = Schema(
    (
        Field("x", "inputs", "step", "float32", 3, ("a", "b", "c")),
        Field("half", "inputs", "step", "float16", 0, ("half",)),
        Field("code", "inputs", "step", "int8", 0, ("code",)),
        Field("y", "targets", "step", "bfloat16", 2, ("p", "q")),
        Field("label", "targets", "sequence", "int16", 0, ("label",)),
        Field("place", "static", "sequence", "float64", 2, ("lat", "lon")),
    ),
    "int64",
)
LENGTHS = [5, 1, 9, 3, 60, 2]


def arrays_of(number: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    steps = LENGTHS[number]
    return {
        "x": random.normal(size=(steps, 3)).astype(np.float32),
        "half": random.normal(size=steps).astype(np.float16),
        "code": random.integers(-5, 100, steps).astype(np.int8),
        "y": to_bfloat16(random.normal(size=(steps, 2))),
        "label": np.int16(number * 100),
        "place": random.normal(size=2),
    }


def widened(bits: Any) -> Any:  # noqa: ANN401 - an array
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collate") / "store"
    with StoreWriter(path, SCHEMA, shard_bytes=1024) as writer:  # the longest lies in several pieces
        for number in range(len(LENGTHS)):
            writer.add(number, arrays_of(number))
        writer.commit()
    return path


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder)


def draft_of(rows: list[tuple[int, int, int]], spare: int = 0) -> Draft:
    spans = Spans(*(np.asarray(part, np.int64) for part in zip(*rows, strict=True)))
    return Draft(spans, int(spans.lengths.max(initial=0)) + spare, 0, 0)


ROWS = st.lists(
    st.integers(0, len(LENGTHS) - 1).flatmap(
        lambda number: st.tuples(
            st.just(number), st.integers(0, LENGTHS[number] - 1), st.integers(1, LENGTHS[number])
        ).map(lambda row: (row[0], min(row[1], row[2] - 1), row[2]))
    ),
    min_size=1,
    max_size=8,
)


@given(rows=ROWS, spare=st.integers(0, 3), batch_first=st.booleans(), group=st.sampled_from([16, 200, 1 << 20]))
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_batch_holds_what_the_store_holds(
    folder: Path, framework: str, rows: list[tuple[int, int, int]], spare: int, batch_first: bool, group: int
) -> None:
    arrays = TorchArrays(torch) if framework == "torch" else NumPyArrays()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collate, "GROUP_BYTES", group)
        batch = Collator(Store(folder), arrays, batch_first=batch_first)(draft_of(rows, spare))
    found = {**batch.inputs, **batch.targets}
    assert {name: str(part.dtype).removeprefix("torch.") for name, part in found.items()} == {
        "x": "float32",
        "half": "float32",
        "code": "int64",
        "y": "float32",
        "label": "int64",
    }
    for name in ("x", "half", "code", "y"):
        part = np.asarray(found[name]) if batch_first else np.asarray(found[name]).swapaxes(0, 1)
        assert part.shape[:2] == (len(rows), batch.steps)
        for row, (number, start, stop) in zip(part, rows, strict=True):
            expected = arrays_of(number)[name][start:stop]
            np.testing.assert_array_equal(row[: stop - start], widened(expected) if name == "y" else expected)
            assert not row[stop - start :].any()
    numbers, starts, stops = zip(*rows, strict=True)
    assert np.asarray(found["label"]).tolist() == [number * 100 for number in numbers]
    np.testing.assert_array_equal(np.asarray(batch.static), [arrays_of(number)["place"] for number in numbers])
    assert np.asarray(batch.index).tolist() == list(numbers)
    assert np.asarray(batch.start).tolist() == list(starts)
    assert np.asarray(batch.lengths).tolist() == [stop - start for _, start, stop in rows]
    assert batch.weight is batch.begins is None
    assert batch.per_step == {"inputs/x", "inputs/half", "inputs/code", "targets/y"}
    assert isinstance(stops, tuple)


def test_types_are_those_asked_for(store: Store) -> None:
    asked = {"x": "bfloat16", "half": "float16", "code": "int8", "y": "bfloat16", "label": "float32"}
    batch = Collator(store, TorchArrays(torch), dtypes=asked)(draft_of([(0, 0, 5), (3, 0, 3)]))
    parts = {**batch.inputs, **batch.targets}
    assert {name: str(part.dtype) for name, part in parts.items()} == {
        name: f"torch.{to}" for name, to in asked.items()
    }
    np.testing.assert_array_equal(batch.targets["y"][0].float().numpy(), widened(arrays_of(0)["y"]))
    expected = torch.from_numpy(arrays_of(0)["x"]).bfloat16()
    assert torch.equal(batch.inputs["x"][0], expected)


@pytest.mark.parametrize(("asked", "said"), [({"z": "float32"}, "'z'"), ({"x": "complex64"}, "'complex64'")])
def test_types_and_fields_that_there_are_not_are_refused(store: Store, asked: dict[str, str], said: str) -> None:
    with pytest.raises(LowtideError, match=said):
        Collator(store, NumPyArrays(), dtypes=asked)


def test_the_stores_transforms_are_applied(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun("x", ("a", "b", "c"), ("a", "b", "c"), scalar=False)
    transform = Standard.fitted(begun, np.asarray([1.0, 2, 3]), np.asarray([2.0, 4, 8]), 0)
    monkeypatch.setattr(store, "transforms_of", lambda name: (transform,) if name == "x" else ())
    batch = Collator(store, NumPyArrays())(draft_of([(2, 1, 8), (0, 0, 5)]))
    expected = (arrays_of(2)["x"][1:8] - [1, 2, 3]) / [2, 4, 8]
    np.testing.assert_allclose(batch.inputs["x"][0], expected, rtol=1e-6)
    assert not batch.inputs["x"][1, 5:].any()
    np.testing.assert_array_equal(store[2].inputs["x"], arrays_of(2)["x"])  # type: ignore[index]  # several


def test_the_last_steps_target_alone(store: Store) -> None:
    batch = Collator(store, TorchArrays(torch), last=True)(draft_of([(2, 1, 8), (0, 0, 2)]))
    assert batch.targets["y"].shape == (2, 2)
    np.testing.assert_array_equal(batch.targets["y"].numpy(), widened([arrays_of(2)["y"][7], arrays_of(0)["y"][1]]))
    assert batch.per_step == {"inputs/x", "inputs/half", "inputs/code"}


def test_rows_without_a_sequence_are_empty(store: Store) -> None:
    draft = replace(draft_of([(-1, 0, 0), (2, 0, 4), (-1, 0, 0)]), begins=np.asarray([False, True, False]))
    batch = Collator(store, TorchArrays(torch), weightings=[SequenceWeights(store, np.ones(6))])(draft)
    assert batch.index.tolist() == [-1, 2, -1]
    assert batch.lengths.tolist() == [0, 4, 0]
    assert batch.begins.tolist() == [False, True, False]
    assert batch.weight.tolist() == [0, 1, 0]
    assert not batch.inputs["x"][0].any()


def test_a_batch_without_rows_has_arrays_without_rows(store: Store) -> None:
    empty = np.empty(0, np.int64)
    batch = Collator(store, TorchArrays(torch))(Draft(Spans(empty, empty, empty), 0, 0, 0))
    assert batch.size == 0
    assert batch.inputs["x"].shape == (0, 0, 3)
    assert batch.static.shape == (0, 2)


def test_packed_batches_have_packed_steps(store: Store) -> None:
    batch = Collator(store, TorchArrays(torch), packed=True)(draft_of([(0, 0, 5), (2, 0, 9)]))
    assert isinstance(batch.inputs["x"], PackedSequence)
    assert isinstance(batch.targets["y"], PackedSequence)
    assert batch.targets["label"].tolist() == [0, 200]


@given(rows=ROWS, packed=st.booleans(), weighted=st.booleans())
def test_bytes_are_known_before_a_batch_is_made(
    folder: Path, rows: list[tuple[int, int, int]], packed: bool, weighted: bool
) -> None:
    store = Store(folder)
    weightings = [SequenceWeights(store, np.ones(6))] if weighted else []
    collator = Collator(store, TorchArrays(torch), packed=packed, weightings=weightings)
    draft = draft_of(rows)
    assert collator(draft).nbytes <= collator.bytes_of(len(rows), draft.steps)
    if not packed:
        assert collator(draft).nbytes == collator.bytes_of(len(rows), draft.steps) - len(rows)  # begins


def test_one_field_of_a_role_is_the_array_itself(folder: Path, tmp_path: Path) -> None:
    del folder
    few = Schema((SCHEMA.fields[0],), "int64")
    with StoreWriter(tmp_path / "few", few) as writer:
        writer.add(0, {"x": arrays_of(0)["x"]})
        writer.commit()
    batch = Collator(Store(tmp_path / "few"), NumPyArrays())(draft_of([(0, 0, 5)]))
    np.testing.assert_array_equal(batch.inputs[0], arrays_of(0)["x"])
    assert batch.targets is batch.static is None
    assert batch.per_step == {"inputs"}


def test_augment_changes_a_batch_with_numbers_that_belong_to_it(store: Store) -> None:
    batch = Collator(store, NumPyArrays())(draft_of([(0, 0, 5)]))

    def noisy(batch: Batch, random: np.random.Generator) -> Batch:
        return replace(batch, static=batch.static + random.normal(size=batch.static.shape))

    first, again, other = (augmented(batch, noisy, key).static for key in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


@pytest.mark.parametrize("wrong", [None, "rows"])
def test_an_augment_that_returns_no_batch_is_refused(store: Store, wrong: str | None) -> None:
    batch = Collator(store, NumPyArrays())(draft_of([(0, 0, 5), (1, 0, 1)]))
    result: Any = None if wrong is None else replace(batch, lengths=batch.lengths[:1])
    with pytest.raises(LowtideError, match="augment returned"):
        augmented(batch, lambda *_: result, 0)
