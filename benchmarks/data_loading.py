"""Runs inside a measuring child: going through an epoch of batches, with Lowtide and with Hugging Face `datasets`."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from benchmarks.data_made import WIDTH

Contestant = Literal["lowtide", "lowtide workers", "torch", "numpy", "grouped", "nested"]
"""A store's loader; its dataset in a DataLoader; `datasets` in one of its formats; with batches by length; and with
lists of steps."""
SAMPLING_SECONDS = 0.02
MOST_SECONDS = 8.0
"""Of an epoch."""
BATCH = 64
_GROUPED_BATCHES = 50
"""Batches whose sequences are sorted by length together, as in the sampler of `transformers`."""


def load(
    store: str, dataset: str, contestant: Contestant, *, workers: int = 0, epochs: int = 1, one_core: bool = True
) -> dict[str, Any]:
    """Valid steps a second of each epoch, or of its beginning, and the most memory that the process tree held.

    Memory is looked at in the first epoch, which is not timed: the cache is warm afterwards.
    """
    if one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create|The given NumPy array is not writable")
    if contestant.startswith("lowtide"):
        import lowtide.data.loading.loader  # noqa: PLC0415 - each contestant's process holds its own libraries alone
        import lowtide.data.loading.torch_dataset  # noqa: F401, PLC0415 - as above
    else:
        import datasets  # noqa: F401, PLC0415 - as above
    with _tree_peak() as peak:
        batches = _batches(store, dataset, contestant, workers)
        _go_through(batches)
    rates = [_go_through(batches) for _ in range(epochs)]
    return {"rates": rates, "start": peak[0], "peak": peak[1]}


def _go_through(batches: Iterable[Any]) -> float:
    start = time.perf_counter()
    steps = 0
    for batch in batches:
        lengths = batch[2] if isinstance(batch, tuple) else batch.lengths
        steps += int(lengths.sum())
        if time.perf_counter() - start > MOST_SECONDS:
            break
    return steps / (time.perf_counter() - start)


def _batches(store: str, dataset: str, contestant: Contestant, workers: int) -> Iterable[Any]:
    if contestant.startswith("lowtide"):
        import lowtide  # noqa: PLC0415 - as above

        opened = lowtide.Store(store)
        if contestant == "lowtide":
            return opened.loader(batch_size=BATCH)
        return DataLoader(opened.dataset(batch_size=BATCH), batch_size=None, num_workers=workers)
    from datasets import load_from_disk  # noqa: PLC0415 - as above

    layout = "nested" if contestant == "nested" else "flat"
    rows = load_from_disk(f"{dataset}/{layout}").with_format("torch" if contestant in {"torch", "grouped"} else "numpy")
    if contestant == "grouped":
        import lowtide  # noqa: PLC0415 - as above

        lengths = np.asarray(lowtide.Store(store).lengths)
        return DataLoader(
            rows,
            batch_sampler=_Grouped(lengths),
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=_collate,
        )
    return DataLoader(
        rows, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0, collate_fn=_collate
    )


class _Grouped:
    """Random batches of nearly equal lengths."""

    def __init__(self, lengths: Any) -> None:  # noqa: ANN401 - an array
        self._lengths = lengths
        self._generator = np.random.default_rng(0)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._generator.permutation(len(self._lengths))
        together = BATCH * _GROUPED_BATCHES
        for start in range(0, len(order), together):
            run = order[start : start + together]
            run = run[np.argsort(self._lengths[run])]
            for batch in self._generator.permutation(-(-len(run) // BATCH)):
                yield run[BATCH * batch : BATCH * (batch + 1)].tolist()


def _collate(rows: list[Mapping[str, Any]]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad with what torch has for it."""
    inputs = [torch.as_tensor(_whole(row["x"])).view(-1, WIDTH) for row in rows]
    targets = [torch.as_tensor(row["y"]) for row in rows]
    lengths = torch.tensor([len(target) for target in targets])
    return pad_sequence(inputs, batch_first=True), pad_sequence(targets, batch_first=True), lengths


def _whole(steps: Any) -> Any:  # noqa: ANN401 - a tensor or array
    """One array of what may be an array of arrays."""
    return np.stack(list(steps)) if isinstance(steps, np.ndarray) and steps.dtype.hasobject else steps


@contextmanager
def _tree_peak() -> Iterator[list[int]]:
    """What this process and its children hold when the block begins, and at most in it, sampled."""
    held, done = [_held_by_tree()] * 2, threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLING_SECONDS):
            held[1] = max(held[1], _held_by_tree())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield held
    finally:
        done.set()
        sampler.join()


def _held_by_tree() -> int:
    """Anonymous and shared pages, each shared one counted once: parts of PSS. Those of mapped files are reclaimable."""
    own = psutil.Process()
    return sum(_held(process) for process in (own, *own.children(recursive=True)))


def _held(process: psutil.Process) -> int:
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = (line.split() for line in text.splitlines())
    return sum(1024 * int(words[1]) for words in lines if words[0] in {"Pss_Anon:", "Pss_Shmem:"})
