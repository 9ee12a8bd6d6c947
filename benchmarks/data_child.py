"""Runs inside a measuring child: ingestion beside DuckDB alone, opening, and padding."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lowtide.memory import read_status, reset_high_water, watch

Ints = NDArray[np.int64]


ACTS = {
    "make table": "data_made.make_table",
    "make many": "data_made.make_many",
    "make lengths": "data_made.make_lengths",
    "make loadable": "data_made.make_loadable",
    "ingest": "data_child.ingest",
    "duckdb": "data_child.sort_with_duckdb",
    "open": "data_child.open_store",
    "late": "data_child.resume_late",
    "padding": "data_child.padding",
    "load": "data_loading.load",
    "resume": "data_resume.resume",
}
"""Functions by what they are asked for as; a child loads the module that it needs, and no other one's libraries."""


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer, all of them fit for JSON
    """Do what a request names."""
    module, name = ACTS[request["act"]].split(".")
    act: Callable[..., Any] = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    return act(**request["options"])


def ingest(
    folder: str, form: Literal["parquet", "csv"], out: str, memory: str | None = None, group: str | None = None
) -> dict[str, float]:
    """Seconds of an ingest and how far it raises memory, in a memory cgroup if one is named."""
    if group is not None:  # before the libraries come, which count as well
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    import lowtide  # noqa: PLC0415 - see above
    import lowtide.data.ingestion.run  # noqa: PLC0415 - brings DuckDB: it is not the ingest that grows by libraries
    from benchmarks.data_made import INPUTS  # noqa: PLC0415 - brings parts of pyarrow

    with watch() as peak:
        start = time.perf_counter()
        store = lowtide.ingest(
            f"{folder}/*.{form}",
            out,
            sequence="user",
            order="t",
            inputs=list(INPUTS),
            target="y",
            memory_limit=memory,
            progress=False,
        )
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "growth": peak.growth, "steps": int(store.lengths.sum()), "sequences": len(store)}


def sort_with_duckdb(
    folder: str, form: Literal["parquet", "csv"], out: str, memory_bytes: int, threads: int
) -> dict[str, float]:
    """Seconds of DuckDB sorting the same rows into a Parquet file, and how far that raises memory."""
    import duckdb  # noqa: PLC0415 - wanted here alone

    from benchmarks.data_made import INPUTS  # noqa: PLC0415 - brings parts of pyarrow

    Path(out).mkdir()
    connection = duckdb.connect(
        config={"memory_limit": f"{memory_bytes >> 20}MiB", "threads": threads, "temp_directory": f"{out}/sorting"}
    )
    connection.execute("SET preserve_insertion_order = false")
    columns = ", ".join(["user", "t", *(f"{name}::FLOAT AS {name}" for name in (*INPUTS, "y"))])
    with watch() as peak:
        start = time.perf_counter()
        connection.execute(
            f"COPY (SELECT * FROM (SELECT {columns} FROM '{folder}/*.{form}') ORDER BY user, t) "  # noqa: S608 - paths made here
            f"TO '{out}/sorted.parquet' (FORMAT parquet)"
        )
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "growth": peak.growth}


def open_store(path: str) -> dict[str, float]:
    """Seconds of opening a store and how far that raises resident memory, mapped pages of files included."""
    from lowtide.data import Store  # noqa: PLC0415 - importing comes before what is measured

    reset_high_water()
    before = read_status()
    start = time.perf_counter()
    store = Store(path)
    sequences = len(store)
    seconds = time.perf_counter() - start
    growth = read_status().high_water - before.anonymous - before.file - before.shared
    opened = read_status()
    start = time.perf_counter()
    last = store[sequences - 1].length
    first_use = time.perf_counter() - start
    steps = int(store.lengths.sum())
    assert last > 0
    held = read_status().anonymous - opened.anonymous
    mapped = "/lengths.npy\n" in Path("/proc/self/maps").read_text(encoding="utf-8")
    return {
        "seconds": seconds,
        "growth": growth,
        "use": first_use,
        "held": held,
        "mapped": mapped,
        "steps": steps,
        "sequences": sequences,
    }


def resume_late(path: str, batches: int) -> float:
    """Seconds from opening a store to its first batch behind a place late in an epoch."""
    import lowtide  # noqa: PLC0415 - as above

    loader = lowtide.Store(path).loader(framework="numpy")
    for _ in islice(loader, batches):
        pass
    state = json.dumps(loader.state_dict())
    start = time.perf_counter()
    again = lowtide.Store(path).loader(framework="numpy")
    again.load_state_dict(json.loads(state))
    assert next(iter(again)).size
    return time.perf_counter() - start


def padding(path: str, batch_size: int, epochs: int) -> dict[str, Any]:
    """Padding as a share of all steps, by epoch and by the ways that are known; and how batches mix."""
    import lowtide  # noqa: PLC0415 - as above

    store = lowtide.Store(path)
    lengths = np.asarray(store.lengths)
    loader = store.loader(batch_size=batch_size, framework="numpy")
    shares: list[float] = []
    numbers: list[Ints] = []
    for _ in range(epochs):
        number = np.full(len(store), -1)
        padded = 0
        for place, batch in enumerate(loader):
            number[batch.index] = place
            padded += batch.size * batch.steps
        assert (number >= 0).all(), "a sequence was in no batch"
        shares.append(1 - int(lengths.sum()) / padded)
        numbers.append(number)
    shuffled = np.random.default_rng(0).permutation(lengths)
    return {
        "epochs": shares,
        "sorted": _padding(np.sort(lengths), batch_size),
        "random": _padding(shuffled, batch_size),
        "together": [_together(*pair) for pair in pairwise(numbers)],
        "by_chance": (batch_size - 1) / (len(lengths) - 1),
    }


def _padding(lengths: Ints, batch_size: int) -> float:
    """Of batches that are runs of these."""
    starts = np.arange(0, len(lengths), batch_size)
    sizes = np.diff(np.append(starts, len(lengths)))
    return 1 - int(lengths.sum()) / int((np.maximum.reduceat(lengths, starts) * sizes).sum())


def _together(one: Ints, other: Ints) -> float:
    """Of all pairs that share a batch in one epoch, how many share one in the other."""
    _, both = np.unique(np.stack([one, other]), axis=1, return_counts=True)
    _, before = np.unique(one, return_counts=True)
    return float((both * (both - 1)).sum() / (before * (before - 1)).sum())
