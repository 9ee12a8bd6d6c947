"""What the tests of ingestion share: stores made of small data, and their content as plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lowtide.data import Store
from lowtide.data.ingest import ingest
from lowtide.errors import LowtideError

Content = dict[Any, dict[str, Any]]


def quietly(sources: Any, out: Path, **asked: Any) -> Store:  # noqa: ANN401 - as ingest
    """Ingest without a word."""
    return ingest(sources, out, progress=False, **asked)


def content(store: Store) -> Content:
    """Every field of every sequence, as lists, by the sequences' names."""
    made: Content = {}
    for number, name in enumerate(store.ids):
        fields = {}
        for field in store.schema.fields:
            if field.per == "step":
                stop = np.array([store.lengths[number]])
                values, _ = store.read(field.name, np.array([number]), np.zeros(1, dtype=np.int64), stop)
            else:
                values = store.read_static(field.name, np.array([number]))[0]
            fields[field.name] = np.asarray(field.values(values)).tolist()
        assert name not in made
        made[name] = fields
    return made


def dropped(store: Store) -> dict[str, int]:
    """What the last ingest left out, by its notes."""
    counts: dict[str, int] = store.manifest.notes["ingests"][-1].get("dropped", {})
    return counts


def filled(store: Store) -> dict[str, int]:
    """What the last ingest filled, by its notes."""
    counts: dict[str, int] = store.manifest.notes["ingests"][-1].get("filled", {})
    return counts


@contextmanager
def refused(folder: Path, *told: str) -> Iterator[None]:
    """An error that says all of this, and leaves nothing behind in a folder."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(LowtideError) as caught:
        yield
    message = str(caught.value)
    for part in told:
        assert part in message, message
    assert caught.value.fix
    assert sorted(folder.rglob("*")) == before


def long_table(sequences: int, steps: int, first: int = 0) -> pd.DataFrame:
    """Every sequence counts its steps, plus a hundred times its number."""
    names = np.repeat(np.arange(first, first + sequences), steps)
    times = np.tile(np.arange(steps), sequences)
    shuffled = np.random.default_rng(0).permutation(len(names))
    table = pd.DataFrame({"u": names, "t": times, "x": 100.0 * names + times})
    return table.iloc[shuffled].reset_index(drop=True)
