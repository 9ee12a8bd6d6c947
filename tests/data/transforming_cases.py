"""Small stores of measurements for the tests of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.fields import Array, StoredType, to_bfloat16
from lowtide.data.view import View

SCHEMA = Schema(
    (
        Field("x", "inputs", "step", "float32", 4, ("a", "b", "c", "d")),
        Field("half", "inputs", "step", "float16", 2, ("p", "q")),
        Field("rough", "inputs", "step", "bfloat16", 2, ("r", "s")),
        Field("code", "inputs", "step", "int16", 2, ("k", "l")),
        Field("y", "targets", "step", "float64", 0, ("price",)),
        Field("place", "static", "sequence", "float32", 2, ("lat", "lon")),
    ),
    "string",
)


def measurements(lengths: Sequence[int], seed: int = 0) -> list[dict[str, Array]]:
    """Sequences of SCHEMA, as they are meant: columns of very different levels and spreads, all positive."""
    random = np.random.default_rng(seed)

    def drawn(*shape: int) -> NDArray[np.float64]:
        return random.lognormal(size=shape) * 10.0 ** np.arange(-1, shape[-1] - 1) + 5

    return [
        {
            "x": drawn(steps, 4).astype(np.float32),
            "half": random.uniform(0, 50, (steps, 2)).astype(np.float16),
            "rough": to_bfloat16(random.uniform(0, 50, (steps, 2))),
            "code": random.integers(0, 9, (steps, 2)).astype(np.int16),
            "y": drawn(steps, 1)[:, 0],
            "place": drawn(2).astype(np.float32),
        }
        for steps in lengths
    ]


def save(path: Path, made: list[dict[str, Array]], schema: Schema = SCHEMA, shard_bytes: int = 1 << 20) -> Store:
    """A store of these sequences, called s0, s1, ..."""
    with StoreWriter(path, schema, shard_bytes=shard_bytes) as writer:
        for number, arrays in enumerate(made):
            writer.add(f"s{number}", {field.name: arrays[field.name] for field in schema.fields})
        writer.commit()
    return Store(path)


def save_x(path: Path, made: list[Array], dtype: StoredType = "float32") -> Store:
    """A store of one field `x` of columns x0, x1, ..."""
    width = made[0].shape[1]
    names = tuple(f"x{column}" for column in range(width))
    schema = Schema((Field("x", "inputs", "step", dtype, width, names),), "string")
    return save(path, [{"x": array.astype(dtype)} for array in made], schema)


def read(view: View, field: str) -> tuple[Array, NDArray[np.int64]]:
    """All steps of a field, as they are meant, and where sequences begin."""
    rows = np.arange(len(view))
    described = view.schema.field(field)
    if described.per == "sequence":
        return described.values(view.read_static(field, rows)), np.arange(len(view) + 1)
    values, offsets = view.read(field, rows, np.zeros_like(rows), np.asarray(view.lengths))
    return described.values(values), offsets


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:  # noqa: ANN401 - arrays, or what makes them
    """See that numbers agree to float32's rounding, by their own size and that of their column."""
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(
        np.asarray(found), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max(initial=0)
    )
