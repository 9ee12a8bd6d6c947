"""Chains of transforms: fitted to the training part alone, the same when read back, inverted, and checked."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import lowtide
from lowtide.data import Store, StoreWriter
from lowtide.data.fields import Array
from lowtide.data.splitting.rules import ByTime
from lowtide.data.splitting.splits import make_splits
from lowtide.data.transforming import fitting
from lowtide.data.transforms import (
    apply_all,
    fit_transforms,
    invert_all,
    of_field,
    read_transforms,
    results_of,
    sequence_numbers,
)
from lowtide.data.view import View
from tests.data.transforming_cases import SCHEMA, assert_close, measurements, read, save, save_x

LENGTHS = [40, 1, 0, 25, 60]
KINDS: list[Any] = ["standard", "minmax", "log1p", {"kind": "pca", "components": 2}, StandardScaler()]
CHAINS = [
    *KINDS,
    ["log1p", "standard"],
    ["standard", {"kind": "pca", "components": 4}],
    [{"kind": "pca", "components": 4, "columns": ["a", "b", "c", "d"]}, "minmax", StandardScaler()],
    [{"kind": "log1p", "columns": ["b"]}, {"kind": "standard", "columns": ["a", "d"]}],
    ["standard", "per_sequence"],
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return save(tmp_path / "store", measurements(LENGTHS))


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_transforms_come_back_from_plain_values_exactly(store: Store, chain: Any) -> None:  # noqa: ANN401 - a request
    made = fit_transforms(store, {"x": chain})
    back = read_transforms(json.loads(json.dumps([transform.to_json() for transform in made], allow_nan=False)), SCHEMA)
    values, offsets = read(store, "x")
    np.testing.assert_array_equal(apply_all(back, values, offsets), apply_all(made, values, offsets))
    assert [transform.to_json() for transform in back] == [transform.to_json() for transform in made]


@pytest.mark.parametrize("chain", CHAINS[3:], ids=str)
def test_a_chain_is_inverted(store: Store, chain: Any) -> None:  # noqa: ANN401 - a request
    made = of_field(fit_transforms(store, {"x": chain, "y": "standard"}), "x")
    values, offsets = read(store, "x")
    done = apply_all(made, values, offsets)
    if made[-1].per_sequence:
        numbers = sequence_numbers(made, values, offsets)
        for row in (0, 3, 4):
            some = slice(offsets[row], offsets[row + 1])
            own = tuple(None if found is None else found[row : row + 1] for found in numbers)
            assert_close(invert_all(made, done[None, some], numbers=own)[0], values[some], 1e-4)
    elif len(results_of(SCHEMA, made, "x")[0]) == 4:
        assert_close(invert_all(made, done), values, 1e-4)
        assert_close(invert_all(made, done.reshape(2, 3, 21, 4)), values.reshape(2, 3, 21, 4), 1e-4)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_a_chain_leaves_the_array_alone_unless_told(store: Store, chain: Any) -> None:  # noqa: ANN401 - a request
    made = fit_transforms(store, {"x": chain})
    values, offsets = read(store, "x")
    before = values.copy()
    done = apply_all(made, values, offsets)
    np.testing.assert_array_equal(values, before)
    assert not np.shares_memory(done, values)
    np.testing.assert_array_equal(apply_all(made, values, offsets, in_place=True), done)
    read_only = before.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(apply_all(made, read_only, offsets, in_place=True), done)
    np.testing.assert_array_equal(apply_all(made, np.asfortranarray(before), offsets, in_place=True), done)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_data_behind_the_cut_move_no_number_by_a_bit(tmp_path: Path, kind: Any) -> None:  # noqa: ANN401 - a request
    lengths = [400, 3, 90, 0, 700]
    made = measurements(lengths)
    splits = make_splits(ByTime({"train": 0.6, "test": 0.4}), ids=list("abcde"), lengths=np.array(lengths))
    changed = [{name: array.copy() for name, array in arrays.items()} for arrays in made]
    for arrays, cut in zip(changed, splits.values[:, 1], strict=True):
        arrays["x"][cut:] = np.nan
    part = splits.part("train")
    told = []
    for name, data, shard_bytes in (("a", made, 1 << 20), ("b", changed, 4_000)):
        view = View(save(tmp_path / name, data, shard_bytes=shard_bytes), part.index, part.start, part.stop)
        told.append(json.dumps([transform.to_json() for transform in fit_transforms(view, {"x": kind})]))
    assert told[0] == told[1]
    with pytest.raises(lowtide.LowtideError, match="is nan"):
        fit_transforms(Store(tmp_path / "b"), {"x": kind})


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any),
    most=st.integers(1, 60),
    group=st.integers(1, 5),
    start=st.integers(0, 3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_blocks_hold_each_step_of_the_part_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    lengths: list[int],
    most: int,
    group: int,
    start: int,
) -> None:
    monkeypatch.setattr(fitting, "_NUMBERS", most)
    monkeypatch.setattr(fitting, "_SEQUENCES", group)
    steps = np.arange(sum(lengths), dtype=np.float32)[:, None]
    store = save_x(tmp_path_factory.mktemp("blocks") / "store", np.split(steps, np.cumsum(lengths)[:-1]))
    counts = np.array(lengths)
    index = np.flatnonzero(counts > start)
    view = View(store, index, np.full(len(index), start), counts[index])
    blocks = list(fitting.blocks_of(view, store.schema.field("x")))
    wanted, offsets = read(view, "x")
    found = np.concatenate([values for values, _ in blocks]) if blocks else wanted[:0]
    assert found.tolist() == wanted.tolist()
    rows = np.concatenate([rows for _, rows in blocks]) if blocks else np.zeros(0)
    assert rows.tolist() == np.repeat(np.arange(len(view)), np.diff(offsets)).tolist()
    assert all(len(values) <= most for values, _ in blocks)
    sizes = [len(block) for block in fitting.of_at_least((values for values, _ in blocks), 7)]
    assert sum(sizes) == len(wanted)
    assert all(size >= 7 for size in sizes) or len(sizes) == 1


def test_fitting_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_NUMBERS", 1 << 14)
    store = save_x(tmp_path / "store", [np.random.default_rng(0).normal(size=(500_000, 4))])
    fit_transforms(store, {"x": ["standard", {"kind": "pca", "components": 2}]})  # imports
    tracemalloc.start()
    fit_transforms(store, {"x": ["standard", {"kind": "pca", "components": 2}]})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20  # the field itself has 8 MB


@pytest.mark.parametrize("field", ["half", "rough", "y", "place"])
def test_every_floating_point_field_can_be_transformed(store: Store, field: str) -> None:
    made = fit_transforms(store, {field: "standard"})
    values, offsets = read(store, field)
    done = apply_all(made, values, offsets)
    columns, dtype = results_of(SCHEMA, made, field)
    assert done.dtype == dtype == (np.float64 if field == "y" else np.float32)
    assert columns == SCHEMA.field(field).columns
    wide = values.astype(np.float64)
    assert_close(done, (wide - wide.mean(0)) / wide.std(0))
    assert_close(invert_all(made, done), values)
    assert invert_all(made, done[:3]).shape == values[:3].shape


def test_some_columns_of_a_target_are_inverted(store: Store) -> None:
    made = fit_transforms(store, {"x": ["log1p", "standard"]})
    values, offsets = read(store, "x")
    done = apply_all(made, values, offsets)
    assert_close(invert_all(made, done[:, [3, 1]], columns=["d", "b"]), values[:, [3, 1]], 1e-4)
    mixed = fit_transforms(store, {"x": {"kind": "pca", "components": 4}})
    done = apply_all(mixed, values, offsets)
    assert_close(invert_all(mixed, done, columns=["d", "b"]), values[:, [3, 1]], 1e-4)


def test_a_column_is_found_by_its_name_and_all_inputs_by_none(store: Store) -> None:
    made = fit_transforms(store, {"b": "log1p", "price": "minmax", "x": {"kind": "standard", "columns": "a"}})
    assert [(transform.field, transform.kind, transform.chosen) for transform in made] == [
        ("x", "log1p", ("b",)),
        ("y", "minmax", ("price",)),
        ("x", "standard", ("a",)),
    ]
    assert [transform.field for transform in fit_transforms(store, "standard")] == ["x", "half", "rough"]
    assert fit_transforms(store, {}) == ()
    values, _ = read(store, "x")
    assert apply_all((), values, None) is values
    assert_close(invert_all((), values), values)


def test_a_chain_is_fitted_to_what_the_transform_before_gives(store: Store) -> None:
    made = fit_transforms(store, {"x": ["log1p", "standard"]})
    values, offsets = read(store, "x")
    logs = np.log1p(values.astype(np.float64))
    assert_close(apply_all(made, values, offsets), (logs - logs.mean(0)) / logs.std(0), 1e-4)


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ("magic", "'magic'"),
        ({"nothing": "standard"}, "'nothing' is no field and no column"),
        ({"x": {"kind": "standard", "columns": ["z"]}}, r"has no column \['z'\]"),
        ({"x": {"kind": "standard", "columns": []}}, r"columns=\[\]"),
        ({"x": {"kind": "standard", "columns": ["a", "a"]}}, "named twice"),
        ({"x": {"kind": "standard", "speed": 1}}, "option 'speed'"),
        ({"x": "pca"}, "with None components"),
        ({"x": {"kind": "pca", "components": 5}}, "5 components of 4 columns"),
        ({"x": {"kind": "minmax", "low": 1, "high": 1}}, "from 1 to 1"),
        ({"x": StandardScaler}, "StandardScaler"),
        ({"x": {"kind": StandardScaler(), "copy": False}}, r"options \['copy'\]"),
        ({"code": "standard"}, 'dtypes={"code": "float32"}'),
        ({"y": {"kind": "pca", "components": 1}}, "single column"),
        ({"y": StandardScaler()}, "no axis of columns"),
        ({"place": "per_sequence"}, "one value a sequence"),
        ({"x": ["per_sequence", "standard"]}, "behind 'per_sequence'"),
        ({"x": object()}, "object"),
    ],
)
def test_what_cannot_be_fitted_is_refused(store: Store, requested: Any, said: str) -> None:  # noqa: ANN401 - a request
    with pytest.raises(lowtide.LowtideError, match=said):
        fit_transforms(store, requested)


def test_codes_of_a_vocabulary_are_for_an_embedding(tmp_path: Path) -> None:
    field = lowtide.data.Field("word", "inputs", "step", "int32", 0, ("word",), vocabulary="word")
    with StoreWriter(tmp_path / "store", lowtide.data.Schema((field,), "int64")) as writer:
        writer.add(0, {"word": np.array([0, 1], dtype=np.int32)})
        writer.commit(vocabularies={"word": ["a", "b"]})
    with pytest.raises(lowtide.LowtideError, match="embedding"):
        fit_transforms(Store(tmp_path / "store"), {"word": "standard"})


@pytest.mark.parametrize("kind", [*KINDS, "per_sequence"], ids=str)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named(tmp_path: Path, kind: Any, wrong: float) -> None:  # noqa: ANN401
    made = measurements(LENGTHS)
    made[3]["x"][7, 2] = wrong
    store = save(tmp_path / "store", made)
    with pytest.raises(lowtide.LowtideError, match=f"column 'c' is {wrong} in the sequence 's3' of the training part"):
        fit_transforms(store, {"x": kind})


def test_a_training_part_without_steps_is_refused(store: Store) -> None:
    with pytest.raises(lowtide.LowtideError, match="no steps"):
        fit_transforms(View(store, np.array([2])), {"x": "standard"})


def test_what_cannot_be_turned_back_is_refused(store: Store) -> None:
    made = fit_transforms(store, {"x": "standard", "y": "standard", "half": "per_sequence"})
    x, y, half = (of_field(made, name) for name in ("x", "y", "half"))
    for chain, values, told, said in (
        (x, np.zeros((5, 3)), {}, r"shape \(5, 3\)"),
        (x, np.zeros((5, 1)), {"columns": ["z"]}, r"columns \['z'\]"),
        (y, np.zeros((5, 1)), {"columns": ["price"]}, "shape"),
        (half, np.zeros((5, 2)), {}, "were not given"),
    ):
        with pytest.raises(lowtide.LowtideError, match=said):
            invert_all(chain, values, **told)  # type: ignore[arg-type]


def broken(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def changed(told: dict[str, Any]) -> dict[str, Any]:
        change(told)
        return told

    return changed


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("standard", lambda told: told.update(version=2)),
        ("standard", lambda told: told.update(kind="magic")),
        ("standard", lambda told: told.update(field="code")),
        ("standard", lambda told: told.update(field="half")),
        ("standard", lambda told: told.update(columns=["a", "b"])),
        ("standard", lambda told: told.update(chosen=["z"])),
        ("standard", lambda told: told.update(chosen=[])),
        ("standard", lambda told: told.pop("numbers")),
        ("standard", lambda told: told["numbers"].pop("scale")),
        ("standard", lambda told: told["numbers"].update(center=[1.0, 2.0])),
        ("standard", lambda told: told["numbers"].update(center=[1.0, 2.0, 3.0, float("nan")])),
        ("standard", lambda told: told["numbers"].update(center=["1.0", "x", "2", "3"])),
        ("standard", lambda told: told["numbers"].update(scale=[0.0, 1.0, 1.0, 1.0])),
        ("minmax", lambda told: told["numbers"].update(offset=None)),
        ({"kind": "pca", "components": 2}, lambda told: told["numbers"]["components"].pop()),
        ({"kind": "pca", "components": 2}, lambda told: told["numbers"].update(components=[])),
        ({"kind": "pca", "components": 2}, lambda told: told["numbers"]["mean"].pop()),
        (StandardScaler(), lambda told: told["numbers"].update(width=0)),
        (StandardScaler(), lambda told: told["numbers"]["attributes"].update(mean_={"array": ["x"]})),
        (StandardScaler(), lambda told: told["numbers"].pop("class")),
    ],
)
def test_stored_numbers_that_do_not_fit_are_refused(store: Store, kind: Any, change: Callable[[Any], object]) -> None:  # noqa: ANN401
    told = [transform.to_json() for transform in fit_transforms(store, {"x": [kind, "standard"]})]
    change(told[0])
    with pytest.raises(lowtide.LowtideError, match="stored transform"):
        read_transforms(told, SCHEMA)


def test_a_store_gives_its_transforms_back(tmp_path: Path) -> None:
    made = [np.random.default_rng(number).normal(3, 2, (9, 2)).astype(np.float32) for number in range(5)]
    field = lowtide.data.Field("x", "inputs", "step", "float32", 2, ("u", "v"))
    with StoreWriter(tmp_path / "store", lowtide.data.Schema((field,), "string")) as writer:
        for number, array in enumerate(made):
            writer.add(str(number), {"x": array})
        written = writer.written()
        splits = make_splits({"train": 0.6, "test": 0.4}, ids=list(map(str, range(5))), lengths=np.full(5, 9))
        train = splits.part("train").index
        writer.commit(splits=splits, transforms=fit_transforms(View(written, train), "standard"))
    store = Store(tmp_path / "store")
    assert store.split("train").index is not None
    assert store.split("train").index.tolist() == train.tolist()  # type: ignore[union-attr]  # as just seen
    values: Array = np.concatenate([made[row] for row in train]).astype(np.float64)
    found = apply_all(store.transforms_of("x"), made[0], np.array([0, 9]))
    assert_close(found, (made[0] - values.mean(0)) / values.std(0))
    assert_close(store.invert("x", found[:, :1], columns=["u"]), made[0][:, :1])
