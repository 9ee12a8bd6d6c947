"""The fastest way to run every batch of an epoch within a number of bytes: a pure function of fitted models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.manner import Manner, chunks_of
from lowtide.planning.models import ByteModel, TimeModel
from lowtide.step.choice import Choice

Ints = NDArray[np.int64]

_MOST_BUCKETS = 10
_EVEN_CUTS = 8
"""Micro-batches up to which every number is tried; beyond, powers of two."""
_SELDOM = 1e-3
"""How often a batch comes that this epoch has not: so seldom that it decides nothing but how itself is run."""
_SAME = 0.01
"""Relative difference in time below which fewer bytes win."""


@dataclass(frozen=True)
class Bucket:
    """Batches of about one length."""

    steps: int
    """The longest of them."""
    rows: int
    """Sequences of the largest of them."""
    batches: float
    """An epoch has so many."""
    mean_steps: float


@dataclass(frozen=True)
class Models:
    """What is known of one way of running."""

    bytes: ByteModel
    seconds: TimeModel


@dataclass(frozen=True)
class Found:
    """What a bucket's batches take under a choice."""

    bucket: Bucket
    choice: Choice
    bytes: float
    """Of a batch and its micro-batch, above what is held without training."""
    seconds: float
    """Of all its batches in an epoch."""


def buckets_of(rows: Ints, steps: Ints, repeats: float, *, bounds: int = 0) -> tuple[Bucket, ...]:
    """Group batches by their lengths, ascending: edges lie the closer together the fewer lengths there are.

    Args:
        rows: Sequences of each batch.
        steps: And the steps it is padded to.
        repeats: How often these batches make up an epoch.
        bounds: How many at the end are no batches of this epoch: others may have such.
    """
    counts = np.where(np.arange(len(steps)) < len(steps) - bounds, repeats, _SELDOM)
    steps = np.maximum(steps, 1)  # a batch of sequences without a step is run as one step
    longest, shortest = int(steps.max()), int(steps.min())
    ratio = max(1.25, (longest / shortest) ** (1 / _MOST_BUCKETS) * 1.0001)
    edges = []
    edge = float(longest)
    while edge >= shortest:
        edges.append(int(edge))
        edge /= ratio
    edges = sorted(set(edges))
    places = np.searchsorted(edges, steps)
    found = []
    for place in range(len(edges)):
        here = places == place
        if here.any():
            lengths = steps[here]
            found.append(
                Bucket(int(lengths.max()), int(rows[here].max()), float(counts[here].sum()), float(lengths.mean()))
            )
    return tuple(found)


def search(
    buckets: tuple[Bucket, ...],
    models: Mapping[Manner, Models],
    batch_bytes: Callable[[int, int], int],
    allowed: float,
) -> list[Found | None]:
    """The fastest choice for each bucket; None where nothing fits.

    Args:
        buckets: The batches of an epoch.
        models: What is known of each way of running.
        batch_bytes: Bytes of a batch of so many sequences and steps.
        allowed: Bytes that training may take above what is held without it.
    """
    return [_best(list(candidates(bucket, models, batch_bytes)), allowed) for bucket in buckets]


def candidates(
    bucket: Bucket, models: Mapping[Manner, Models], batch_bytes: Callable[[int, int], int]
) -> Iterator[Found]:
    """Every choice for a bucket, with what it takes: beside its batch a micro-batch, or the next batch being made."""
    whole_batch = batch_bytes(bucket.rows, bucket.steps)
    for manner, known in models.items():
        if manner.chunk_steps is not None and manner.chunk_steps >= bucket.steps:
            continue
        for rows in row_counts(bucket.rows):
            for kept in _kept_counts(manner, bucket.steps):
                choice = manner.choice(bucket.steps, rows, kept)
                typical = manner.choice(max(1, round(bucket.mean_steps)), rows, kept)
                seconds = -(-bucket.rows // rows) * known.seconds.predict(typical)
                taken = whole_batch + max(known.bytes.predict(choice), whole_batch)
                yield Found(bucket, choice, taken, bucket.batches * seconds)


def row_counts(rows: int) -> list[int]:
    """Sizes of micro-batches that are worth trying: even cuts of a batch."""
    counts = {-(-rows // parts) for parts in range(1, _EVEN_CUTS + 1)}
    parts = _EVEN_CUTS
    while parts < rows:
        parts *= 2
        counts.add(-(-rows // parts))
    return sorted(counts | {1}, reverse=True)


def _kept_counts(manner: Manner, steps: int) -> list[int]:
    """Numbers of kept chunks worth trying: none, and shares of all; keeping all is running whole by another name."""
    if manner.chunk_steps is None:
        return [0]
    chunks = chunks_of(manner.choice(steps, 1))
    return sorted({0, *(round(chunks * share / 8) for share in range(1, 8))} - {chunks})


def _best(found: list[Found], allowed: float) -> Found | None:
    fitting = [one for one in found if one.bytes <= allowed]
    if not fitting:
        return None
    fastest = min(one.seconds for one in fitting)
    return min((one for one in fitting if one.seconds <= fastest * (1 + _SAME)), key=lambda one: one.bytes)
