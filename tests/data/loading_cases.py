"""A store whose numbers say where they come from, and lengths like those of real data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.loading.order import Ints

SCHEMA = Schema(
    (
        Field("x", "inputs", "step", "float32", 2, ("sequence", "step")),
        Field("y", "targets", "step", "int16", 0, ("code",)),
        Field("s", "static", "sequence", "float32", 1, ("tenth",)),
    ),
    "int64",
)
"""Targets per step."""
LABELLED = Schema(
    (SCHEMA.fields[0], Field("label", "targets", "sequence", "int8", 0, ("label",)), SCHEMA.fields[2]), "int64"
)
"""Targets per sequence."""


def told(lengths: Sequence[int], path: Path, schema: Schema = SCHEMA) -> Store:
    """A store in which step t of sequence k holds x = (k, t), y = (k + t) % 7, label = k % 3 and s = k / 10."""
    with StoreWriter(path, schema) as writer:
        for number, steps in enumerate(lengths):
            step = np.arange(steps)
            arrays: dict[str, Any] = {
                "x": np.stack([np.full(steps, number), step], 1).astype(np.float32),
                "y": ((number + step) % 7).astype(np.int16),
                "label": np.int8(number % 3),
                "s": np.asarray([number / 10], np.float32),
            }
            writer.add(number, {field.name: arrays[field.name] for field in schema.fields})
        writer.commit()
    return Store(path)


def log_normal(count: int, seed: int = 0, *, median: float = 50.0) -> Ints:
    """Lengths that are log-normal with sigma 1."""
    drawn = np.random.default_rng(seed).normal(np.log(median), 1, count)
    return np.maximum(1, np.rint(np.exp(drawn))).astype(np.int64)


def rows_of(batch: Any) -> list[tuple[int, int, int]]:  # noqa: ANN401 - of either framework
    """Of each row: its sequence, first step and number of steps."""
    parts = (np.asarray(part).tolist() for part in (batch.index, batch.start, batch.lengths))
    return list(zip(*parts, strict=True))


def assert_told(batch: Any) -> None:  # noqa: ANN401 - of either framework
    """See that a batch of a told store holds what its index, start and lengths say, and zeros behind."""
    x = np.asarray(batch.inputs)
    x = x if batch.batch_first else x.swapaxes(0, 1)
    assert x.shape[:2] == (batch.size, batch.steps)
    for row, (sequence, start, steps) in zip(x, rows_of(batch), strict=True):
        np.testing.assert_array_equal(row[:steps, 0], sequence)
        np.testing.assert_array_equal(row[:steps, 1], np.arange(start, start + steps))
        assert not row[steps:].any()
