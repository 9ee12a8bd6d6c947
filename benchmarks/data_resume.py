"""Runs inside a measuring child: loaders stopped and gone on with at random places, against runs never interrupted.

A run is known by a digest of every array of each of its batches. With another number of ranks the ranks' batches, in
turns, must be those that one rank alone would have been given, but for the end of the epoch, which is dealt out so that
every rank has the same number of batches: there every step of every row must come exactly once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.data_made import log_normal_lengths
from lowtide.data import Batch, Field, Loader, Schema, Store, StoreWriter, Windows

SEQUENCES = 700
EPOCHS = 3
_PREFETCH = 1 << 16

SETTINGS: dict[str, dict[str, Any]] = {
    "shuffled": {"batch_size": 16},
    "in order": {"batch_size": 16, "shuffle": False},
    "max_padded_steps": {"max_padded_steps": 4096, "over_length": "split"},
    "windows": {"batch_size": 32, "windows": Windows(64, stride=48)},
    "random crops, lengths rounded": {"batch_size": 16, "max_length": 100, "cut": "random", "round_lengths": 32},
}


def resume(path: str, points: int) -> dict[str, Any]:
    """Stop and go on at random points; how many of them gave other batches, by setting, and the slowest resumption."""
    _make(path)
    generator = np.random.default_rng(0)
    whole = {name: list(_epochs(_loader(path, name), EPOCHS)) for name in SETTINGS}
    wrong: Counter[str] = Counter()
    slowest = 0.0
    names = list(SETTINGS)
    for point in range(points):
        name = names[point % len(names)]
        if point // len(names) % 4 == 0:
            wrong[f"{name}, ranks"] += not _goes_on_with_ranks(path, name, whole[name], generator)
        else:
            same, seconds = _goes_on(path, name, whole[name], generator)
            wrong[name] += not same
            slowest = max(slowest, seconds)
    return {"wrong": dict(wrong), "slowest": slowest, "points": points}


def _make(path: str) -> None:
    schema = Schema((Field("x", "inputs", "step", "float32", 0), Field("y", "targets", "step", "float32", 0)), "int64")
    lengths = np.minimum(log_normal_lengths(SEQUENCES), 1000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    numbers = pa.LargeListArray.from_arrays(offsets, pa.array(np.arange(offsets[-1], dtype=np.float32)))
    with StoreWriter(path, schema) as writer:
        writer.add_rows(pa.record_batch([pa.array(np.arange(SEQUENCES)), numbers, numbers], schema=schema.arrow))
        writer.commit()


def _loader(path: str, name: str, rank: int = 0, ranks: int = 1) -> Loader:
    return Store(path).loader(**SETTINGS[name], prefetch_bytes=_PREFETCH, rank=rank, ranks=ranks, framework="numpy")


def _epochs(loader: Loader, epochs: int) -> Iterator[list[str]]:
    """Digests of the batches of each epoch from where a loader is to before an epoch."""
    while loader.epoch < epochs:
        yield [_digest(batch) for batch in loader]


def _digest(batch: Batch) -> str:
    arrays = (batch.inputs, batch.targets, batch.lengths, batch.index, batch.start, batch.weight)
    digest = hashlib.sha256(repr((batch.size, batch.steps)).encode())
    for array in arrays:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _goes_on(path: str, name: str, whole: list[list[str]], generator: np.random.Generator) -> tuple[bool, float]:
    """Stop twice, each time in a new loader, and compare all that came."""
    flat = [digest for epoch in whole for digest in epoch]
    stops = np.sort(generator.integers(0, len(flat), 2)).tolist()
    found: list[str] = []
    state, seconds = None, 0.0
    for stop in (*stops, len(flat)):
        start = time.perf_counter()
        loader = _loader(path, name)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for number, batch in enumerate(islice(_forever(loader), stop - len(found))):
            if number == 0:
                seconds = max(seconds, time.perf_counter() - start)
            found.append(_digest(batch))
        state = json.dumps(loader.state_dict())
    return found == flat, seconds


def _forever(loader: Loader) -> Iterator[Batch]:
    while True:
        yield from loader


def _goes_on_with_ranks(path: str, name: str, whole: list[list[str]], generator: np.random.Generator) -> bool:
    """Stop twice in an epoch, each time going on with another number of ranks, and compare it and the next one."""
    numbers = generator.integers(1, 5, 3).tolist()
    state, epoch = None, list[Batch]()
    for place, ranks in enumerate(numbers):
        loaders = [_loader(path, name, rank, ranks) for rank in range(ranks)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(json.loads(state))
        left = (len(whole[0]) - len(epoch)) // ranks
        last = place == len(numbers) - 1
        epoch += _in_turns(loaders, None if last else int(generator.integers(0, max(1, left))))
        (state,) = {json.dumps(loader.state_dict()) for loader in loaders}
    same = [_digest(batch) for batch in epoch[: len(whole[0]) - 2 * sum(numbers)]]
    alone = list(islice(_loader(path, name), len(whole[0])))
    following = [_digest(batch) for batch in _in_turns(loaders, None)]
    never = [_digest(batch) for batch in _in_turns([_at(path, name, rank, ranks) for rank in range(ranks)], None)]
    return same == whole[0][: len(same)] and _rows(epoch) == _rows(alone) and following == never


def _at(path: str, name: str, rank: int, ranks: int) -> Loader:
    loader = _loader(path, name, rank, ranks)
    loader.set_epoch(1)
    return loader


def _in_turns(loaders: list[Loader], rounds: int | None) -> list[Batch]:
    """So many batches of every rank, in the order of places; None: to the end of the epoch."""
    each = [list(islice(loader, rounds)) for loader in loaders]
    assert len({len(batches) for batches in each}) == 1, "ranks have not the same number of batches"
    return [batch for turn in zip(*each, strict=True) for batch in turn]


def _rows(batches: list[Batch]) -> Counter[tuple[int, int, int]]:
    """Which steps of which sequences came, and how often."""
    rows = (zip(*(array.tolist() for array in (one.index, one.start, one.lengths)), strict=True) for one in batches)
    return Counter((index, start, length) for batch in rows for index, start, length in batch if length)
