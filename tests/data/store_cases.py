"""Small stores for tests: a schema with every kind of field, drawn sequences of it, and how to write them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.fields import Array
from lowtide.data.view import View

Sequences: TypeAlias = list[tuple[str, dict[str, Array]]]

SCHEMA = Schema(
    (
        Field("x", "inputs", "step", "float32", 3, ("a", "b", "c")),
        Field("code", "inputs", "step", "int16", 0, ("kind",)),
        Field("y", "targets", "step", "bfloat16", 0, ("y",)),
        Field("label", "targets", "sequence", "int64", 0, ("label",)),
        Field("place", "static", "sequence", "float64", 2, ("lat", "lon")),
    ),
    "string",
)
STEP_BYTES = 16
"""Bytes of one step of SCHEMA."""


def sequences(lengths: Sequence[int], *, first: int = 0, seed: int = 0) -> Sequences:
    """Sequences of SCHEMA, drawn; the k-th is called `s<first + k>`."""
    random = np.random.default_rng([seed, first])
    made: Sequences = []
    for number, steps in enumerate(lengths, start=first):
        arrays: dict[str, Array] = {
            "x": random.normal(size=(steps, 3)).astype(np.float32),
            "code": random.integers(-9, 9, steps).astype(np.int16),
            "y": random.integers(0, 0x7F00, steps).astype(np.uint16),
            "label": np.array(number * 7, dtype=np.int64),
            "place": random.normal(size=2),
        }
        made.append((f"s{number}", arrays))
    return made


def write(path: Path, made: Sequences, schema: Schema = SCHEMA, *, shard_bytes: int = 1 << 20, **commit: Any) -> Store:  # noqa: ANN401
    """Write sequences one by one, and open the store."""
    with StoreWriter(path, schema, shard_bytes=shard_bytes) as writer:
        for name, arrays in made:
            writer.add(name, arrays)
        writer.commit(**commit)
    return Store(path)


def assert_holds(view: View, made: Sequences) -> None:
    """See that a store, or a part of one, holds exactly these sequences of SCHEMA, however it is read."""
    assert len(view) == len(made)
    np.testing.assert_array_equal(view.lengths, [len(arrays["x"]) for _, arrays in made])
    assert list(view.ids) == [name for name, _ in made]
    rows = np.arange(len(made))
    for name in ("x", "code", "y"):
        values, offsets = view.read(name, rows, np.zeros_like(rows), np.asarray(view.lengths))
        np.testing.assert_array_equal(values, np.concatenate([arrays[name] for _, arrays in made]))
        np.testing.assert_array_equal(np.diff(offsets), view.lengths)
    for name in ("label", "place"):
        np.testing.assert_array_equal(view.read_static(name, rows), [arrays[name] for _, arrays in made])
    for sequence, (name, arrays) in zip(view, made, strict=True):
        assert sequence.id == name
        found = flat(sequence.inputs) | flat(sequence.targets) | {"place": sequence.static}
        for field, array in arrays.items():
            expected = (array.astype(np.uint32) << 16).view(np.float32) if field == "y" else array
            np.testing.assert_array_equal(np.asarray(found[field]), expected)


def flat(part: object) -> dict[str, Any]:
    """One role's arrays by name, of a role with several fields."""
    assert isinstance(part, dict)
    return part


def bytes_of(values: NDArray[Any]) -> bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(values).tobytes()


def arrow_rows(made: Sequences, schema: Schema = SCHEMA) -> pa.RecordBatch:
    """The same sequences as Arrow's own Python makes them."""
    columns = [pa.array([name for name, _ in made], type=schema.arrow.field(0).type)]
    columns += [
        pa.array([arrays[field.name].tolist() for _, arrays in made], type=field.arrow.type) for field in schema.fields
    ]
    return pa.record_batch(columns, schema=schema.arrow)


def give(writer: StoreWriter, made: Sequences, way: str, pieces: int) -> None:
    """Hand sequences of SCHEMA to a writer: whole ("add"), many at once ("rows"), or each in some pieces ("bits")."""
    if way == "rows":
        writer.add_rows(arrow_rows(made))
        return
    for name, arrays in made:
        if way == "add":
            writer.add(name, arrays)
            continue
        writer.begin(name)
        steps = {field.name: np.array_split(arrays[field.name], pieces) for field in SCHEMA.per_step}
        for piece in range(pieces):
            writer.extend({field: parts[piece] for field, parts in steps.items()})
        writer.end({field.name: arrays[field.name] for field in SCHEMA.per_sequence})


def begin_and_die(
    path: Path, made: Sequences, *, shard_bytes: int, request: dict[str, object], append: bool = False
) -> None:
    """Write, and be interrupted before the end."""
    with (
        suppress(KeyboardInterrupt),
        StoreWriter(path, SCHEMA, shard_bytes=shard_bytes, request=request, append=append) as writer,
    ):
        for name, arrays in made:
            writer.add(name, arrays)
        raise KeyboardInterrupt


def file_entries(value: object) -> list[dict[str, object]]:
    """Every file that a manifest names."""
    if isinstance(value, dict):
        return [value] if "sha256" in value else [entry for part in value.values() for entry in file_entries(part)]
    return [entry for part in value for entry in file_entries(part)] if isinstance(value, list) else []
