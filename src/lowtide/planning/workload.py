"""What is to be trained on: how many batches of which size an epoch has, and what one looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from lowtide.data.loading.assembly import drafts_of, items_of_lengths
from lowtide.data.loading.drafts import Drafts, sizes_of
from lowtide.data.loading.loader import Loader
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.view import View
from lowtide.errors import LowtideError
from lowtide.nn.bucketed import BucketedLoader, bucketed
from lowtide.planning.pattern import Pattern, read_pattern
from lowtide.step._randomness import Watch

Ints = NDArray[np.int64]
BatchSize = int | Literal["auto"]

_MOST_BATCHES = 4096
"""Of an epoch that are looked at; the rest is taken to be like them."""
_LOOKED_AT = 8
"""Batches of a DataLoader without lengths that are read."""
_MOST_SHAPES = 1024
"""That libraries keep something for."""
_RING_SHARE = 0.1
"""Of the bytes left for training, what batches made ahead may take."""


@dataclass(frozen=True)
class Workload:
    """The batches of an epoch."""

    pattern: Pattern
    rows: Ints
    """Sequences of each batch."""
    steps: Ints
    """And the steps it is padded to."""
    repeats: float
    """How often these batches make up an epoch."""
    batch_size: int
    """Sequences of one optimizer step, at most."""
    ring_bytes: int
    """What loading holds beside the batch in use while a step runs, at most."""
    told: str
    """Where the sizes come from, in words."""
    on_device: bool = True
    """Whether a batch lies where the model is: on a GPU it is moved there micro-batch by micro-batch."""
    loader: Loader | None = None
    """What loads the batches, where it is Lowtide's."""
    prefetch_bytes: int | None = None
    """What that loader is to make ahead."""
    bounds: int = 0
    """How many of the sizes, at the end, are of no batch of this epoch: others may have such."""

    @property
    def batches(self) -> float:
        """In an epoch."""
        return self.repeats * (len(self.rows) - self.bounds)

    @property
    def epoch_steps(self) -> float:
        """Steps of all batches of an epoch, padding included."""
        of_epoch = slice(len(self.rows) - self.bounds)
        return float((self.rows[of_epoch] * self.steps[of_epoch]).sum()) * self.repeats

    @property
    def longest(self) -> int:
        """Steps of the longest batch."""
        return int(self.steps.max())

    def batch_bytes(self, rows: int, steps: int) -> int:
        """Bytes of a batch of this size, in the memory that is planned."""
        return self.pattern.bytes(rows, steps) if self.on_device else 0

    @property
    def shapes(self) -> int:
        """Different shapes that the micro-batches of an epoch have, about and at most."""
        different = len(np.unique(np.stack([self.rows, self.steps]), axis=1).T)
        return min(_MOST_SHAPES, different * (2 if self.pattern.has_lengths else 1))

    def with_ring_in(self, left: int) -> Workload:
        """The same, with as much made ahead as the loader was told to, or nothing where that is a large part of `left`.

        Without, a batch is made when the step before is over: it stands beside the batch before, not beside the step.
        """
        if self.loader is None or self.ring_bytes <= _RING_SHARE * left:
            return self
        making = self.loader.ring_bytes_with(0) - self.pattern.bytes(*self.loader.largest)
        return replace(self, ring_bytes=max(0, making), prefetch_bytes=0)

    @property
    def varies(self) -> bool:
        """Whether batches differ in steps."""
        return bool((self.steps != self.steps[0]).any())


def read_workload(
    model: nn.Module,
    *,
    data: Any = None,  # noqa: ANN401 - a Store, a loader, a Dataset or a DataLoader
    sample: Any = None,  # noqa: ANN401 - a batch
    lengths: ArrayLike | None = None,
    batch_size: int,
    batch_first: bool | None = None,
) -> Workload:
    """Look at the data, or at a sample and lengths.

    Raises:
        LowtideError: Neither is given or both are, or they cannot be made out.
    """
    if (data is None) == (sample is None):
        raise LowtideError(
            what="neither data= nor sample= was given" if data is None else "data= and sample= were given together",
            why="a plan is made for batches of known sizes",
            fix="give data= (a Store, a loader, a Dataset or a DataLoader), or sample=batch with lengths=",
        )
    if batch_first is None:
        batch_first = layout_of(model)
    if data is not None:
        with _undrawn(data):
            return _of_data(data, lengths, batch_size, batch_first=batch_first)
    pattern = read_pattern(sample, batch_first=batch_first)
    if lengths is None:
        return _fixed(pattern, batch_size)
    table = _checked(lengths)
    return _of_drafts(pattern, _drafts_of(table, batch_size), batch_size, told=f"{len(table)} lengths")


def layout_of(model: nn.Module) -> bool:
    """Whether a model takes batches first: as its layers say, where any does."""
    said = {one.batch_first for one in model.modules() if isinstance(getattr(one, "batch_first", None), bool)}
    return said != {False}


def sizes_to_try(data: Any, lengths: ArrayLike | None) -> list[int]:  # noqa: ANN401 - as for a workload
    """Batch sizes for "auto": powers of two, as far as there are sequences for eight batches.

    Raises:
        LowtideError: The data come in batches that are made already.
    """
    if isinstance(data, (Loader, DataLoader)):
        raise LowtideError(
            what=f'batch_size="auto" with a {type(data).__name__}, whose batches have their sizes already',
            why="other sizes are tried by making other batches",
            fix="give what it loads from, a Store or a Dataset, or sample=batch with lengths=",
        )
    count = len(data) if isinstance(data, Sized) else None
    if count is None and lengths is not None:
        count = len(np.asarray(lengths))
    return [size for size in (8, 16, 32, 64, 128, 256, 512) if count is None or size == 8 or 8 * size <= count]  # noqa: PLR2004


def _of_data(data: Any, lengths: ArrayLike | None, batch_size: int, *, batch_first: bool) -> Workload:  # noqa: ANN401
    if isinstance(data, View):
        data = data.loader(batch_size=batch_size)
    if isinstance(data, Loader):
        return _of_loader(data, batch_size)
    if isinstance(data, BucketedLoader):
        return _of_bucketed(data, batch_size, batch_first=batch_first)
    if isinstance(data, DataLoader):
        return _of_torch_loader(data, lengths, batch_size, batch_first=batch_first)
    if _is_numbered(data):
        return _of_dataset(data, lengths, batch_size, batch_first=batch_first)
    raise LowtideError(
        what=f"data= is a {type(data).__name__}",
        why="sizes are read from what batches come from",
        fix="give a Store, a loader, a Dataset or a DataLoader; or sample=batch with lengths=",
    )


def _is_numbered(data: object) -> bool:
    """Whether samples can be asked for by their numbers."""
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return numbered and not isinstance(data, (Mapping, str, bytes, IterableDataset))


@contextmanager
def _undrawn(data: Any) -> Iterator[None]:  # noqa: ANN401 - as for a workload
    """Put every random generator back that looking at data may move: the process's own, and those of a DataLoader."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call] # torch ships it so
    before = Watch([torch.device("cuda", gpu) for gpu in gpus])
    samplers = [getattr(data, name, None) for name in ("sampler", "batch_sampler")]
    drawing = [data, *samplers, *(getattr(one, "sampler", None) for one in samplers)]
    found = [getattr(one, "generator", None) for one in drawing]
    own = {one: one.get_state() for one in found if isinstance(one, torch.Generator)}
    try:
        yield
    finally:
        before.put_back(own)


def _of_loader(loader: Loader, batch_size: int) -> Workload:
    if loader.settings.lanes is not None:
        raise LowtideError(
            what="a plan was asked for a loader of lanes",
            why="lanes are truncated back-propagation with carried state: their chunks are the plan",
            fix="use StreamStep(..., stateful=True), or a loader without lanes= for exact training",
        )
    if loader.settings.packed:
        raise LowtideError(
            what="a plan was asked for a loader with packed=True",
            why="micro-batches are cut out of padded batches; lean layers skip padding all the same",
            fix="leave packed= out",
        )
    pattern = read_pattern(loader.batch(0), batch_first=loader.settings.batch_first)
    found = np.array(list(islice(loader.sizes(), _MOST_BATCHES)), dtype=np.int64)
    rows, longest = _largest(loader)
    _check_size(batch_size, int(found[:, 0].max()))
    return Workload(
        pattern=pattern,
        rows=np.append(found[:, 0], rows),
        steps=np.append(found[:, 1], longest),
        repeats=len(loader) / len(found),
        bounds=1,
        batch_size=rows if loader.settings.max_padded_steps is None else int(found[:, 0].max()),
        ring_bytes=loader.ring_bytes,
        told=f"a store's loader, {len(loader)} batches an epoch",
        loader=loader,
        prefetch_bytes=loader.settings.prefetch_bytes,
    )


def _largest(loader: Loader) -> tuple[int, int]:
    """Rows and steps that no batch of any epoch exceeds, in this combination or in product."""
    rows, steps = loader.largest
    most = loader.settings.max_padded_steps
    return (rows if most is None else -(-most // steps)), steps


def _of_bucketed(loader: BucketedLoader, batch_size: int, *, batch_first: bool) -> Workload:
    place = loader.state_dict()
    loader.set_epoch(loader.epoch)
    try:
        pattern = read_pattern(next(iter(loader)), batch_first=batch_first)
    finally:
        loader.load_state_dict(place)
    made = _of_drafts(pattern, loader.drafts, batch_size, told="a bucketed loader")
    made = replace(made, batch_size=int(made.rows.max()))
    return replace(made, ring_bytes=_ahead(loader, made))


def _of_torch_loader(
    loader: DataLoader[Any], lengths: ArrayLike | None, batch_size: int, *, batch_first: bool
) -> Workload:
    if loader.batch_size is not None:
        _check_size(batch_size, loader.batch_size)
        batch_size = loader.batch_size
    found: Counter[tuple[int, int]] = Counter()
    pattern = None
    for batch in islice(loader, _LOOKED_AT):
        seen = read_pattern(batch, batch_first=batch_first)
        pattern = seen if pattern is None or seen.full_steps > pattern.full_steps else pattern
        found[(seen.full_rows, seen.full_steps)] += 1
    if pattern is None:
        raise LowtideError(
            what="the DataLoader gave no batch",
            why="a plan is made for batches of known sizes",
            fix="give a DataLoader over data that are there",
        )
    if lengths is not None:
        table = _checked(lengths)
        found_sizes = _unsorted(pattern, table, batch_size, told=f"{len(table)} lengths, in random batches")
        return replace(found_sizes, ring_bytes=_ahead(loader, found_sizes))
    batches = len(loader) if hasattr(loader.dataset, "__len__") else sum(found.values())
    sizes = np.array(list(found.elements()), dtype=np.int64)
    told = f"{len(sizes)} batches of the DataLoader"
    if len(set(sizes[:, 1].tolist())) > 1:
        told += ": a longer one is refused; give lengths= for all"
    made = Workload(pattern, sizes[:, 0], sizes[:, 1], batches / len(sizes), batch_size, 0, told)
    return replace(made, ring_bytes=_ahead(loader, made))


def _ahead(loader: DataLoader[Any], workload: Workload) -> int:
    """Bytes of the batches that a DataLoader's workers make ahead, in shared memory."""
    return (
        loader.num_workers
        * (loader.prefetch_factor or 0)
        * workload.pattern.bytes(workload.batch_size, workload.longest)
    )


def _of_dataset(
    dataset: Any,  # noqa: ANN401 - whatever has numbered samples
    lengths: ArrayLike | None,
    batch_size: int,
    *,
    batch_first: bool,
) -> Workload:
    if lengths is not None:
        loader = bucketed(dataset, lengths, batch_size=batch_size, batch_first=batch_first)
        return _of_bucketed(loader, batch_size, batch_first=batch_first)
    if len(dataset) == 0:
        raise LowtideError(
            what="the dataset holds no sample",
            why="a plan is made for batches of known sizes",
            fix="give data that are there",
        )
    try:
        batch = torch.utils.data.default_collate([dataset[place] for place in range(min(len(dataset), batch_size))])
    except (RuntimeError, TypeError) as error:
        raise LowtideError(
            what=f"samples of the dataset do not stack: {error}",
            why="sequences of different lengths need to be known by their lengths",
            fix="give lengths= (one number a sample), or a DataLoader with the collate function that you train with",
        ) from error
    return _fixed(read_pattern(batch, batch_first=batch_first), batch_size, count=len(dataset))


def _fixed(pattern: Pattern, batch_size: int, *, count: int | None = None) -> Workload:
    """All batches of one size."""
    return Workload(
        pattern=pattern,
        rows=np.array([batch_size if count is None else min(batch_size, count)]),
        steps=np.array([pattern.full_steps]),
        repeats=1.0 if count is None else max(1.0, count / batch_size),
        batch_size=batch_size,
        ring_bytes=0,
        told="one batch of a fixed size" if count is None else f"{count} samples of one size",
    )


def _of_drafts(pattern: Pattern, drafts: Drafts, batch_size: int, *, told: str) -> Workload:
    found = np.array([*islice(sizes_of(drafts, 0), _MOST_BATCHES), drafts.largest()], dtype=np.int64)
    _check_size(batch_size, int(found[:, 0].max()))
    repeats = drafts.count(0) / (len(found) - 1)
    return Workload(pattern, found[:, 0], found[:, 1], repeats, batch_size, 0, told, bounds=1)


def _drafts_of(lengths: Ints, batch_size: int) -> Drafts:
    settings = LoaderSettings(batch_size=batch_size)
    return drafts_of(items_of_lengths(lengths, settings), settings)


def _unsorted(pattern: Pattern, lengths: Ints, batch_size: int, *, told: str) -> Workload:
    """Batches of sequences as they come: each padded to its longest."""
    order = np.random.default_rng(0).permutation(lengths)
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)][:_MOST_BATCHES]
    rows = np.array([*map(len, batches), min(batch_size, len(lengths))])
    steps = np.array([*(part.max() for part in batches), lengths.max()])
    return Workload(pattern, rows, steps, len(lengths) / batch_size / len(batches), batch_size, 0, told, bounds=1)


def _checked(lengths: ArrayLike) -> Ints:
    table = np.asarray(lengths.cpu() if isinstance(lengths, torch.Tensor) else lengths)
    if table.ndim != 1 or not len(table) or not np.issubdtype(table.dtype, np.integer) or (table < 1).any():
        raise LowtideError(
            what=f"lengths of shape {table.shape} and type {table.dtype}",
            why="they say how many steps each sequence of the data has",
            fix="give one whole number above 0 for each sequence",
        )
    return table.astype(np.int64)


def _check_size(asked: int, found: int) -> None:
    if found > asked:
        raise LowtideError(
            what=f"batch_size={asked}, and the data come in batches of {found} sequences",
            why="the effective batch is what the loader gives: a plan cuts it, and never changes it",
            fix=f"pass batch_size={found}, or a loader with batch_size={asked}",
        )
