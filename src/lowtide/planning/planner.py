"""`plan` and `fits`: the doors of planning. How a plan comes about is told in maker.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.optim import Optimizer

from lowtide.errors import LowtideError
from lowtide.memory.sizes import in_words
from lowtide.planning import cache
from lowtide.planning.fit import Fit
from lowtide.planning.floor import DoesNotFitError
from lowtide.planning.maker import planning
from lowtide.planning.plan import Plan, SizeTried
from lowtide.planning.subject import Factory
from lowtide.planning.task import Task
from lowtide.planning.workload import BatchSize, Workload, read_workload, sizes_to_try

_WORTH_LARGER = 1.03
"""Relative gain in throughput for which "auto" takes a larger batch."""


def plan(
    model: nn.Module,
    loss_fn: Any,  # noqa: ANN401 - a function or a module
    *,
    optimizer: Optimizer,
    data: Any = None,  # noqa: ANN401 - a Store, a loader, a Dataset or a DataLoader
    sample: Any = None,  # noqa: ANN401 - a batch
    lengths: ArrayLike | None = None,
    batch_size: BatchSize,
    budget: int | str | None = None,
    precision: str = "float32",
    device: torch.device | str | None = None,
    batch_first: bool | None = None,
    factory: Factory | None = None,
) -> Plan:
    """Find the fastest way to train inside a budget, and prove it.

    The result of training never depends on the plan: the batch stays what `batch_size` says, micro-batches and chunks
    are exact. Probes run in a child process; the model here is not touched.

    Args:
        model: What is trained, on the device that it is trained on.
        loss_fn: As `PlannedStep` takes it.
        optimizer: Over the model's parameters.
        data: Where batches come from: a Store or a part of one, a loader, a Dataset or a DataLoader.
        sample: Instead: one batch.
        lengths: Steps of each sequence, with a sample, a Dataset or a DataLoader.
        batch_size: Sequences of one optimizer step; "auto" for the size of highest throughput that fits.
        budget: Bytes that this process and its children may hold in all, as a number or like "2GiB"; None for what
            this machine, container or GPU allows.
        precision: "float32", which is whatever the parameters are of, or "bfloat16": autocast, which is opt-in.
        device: Where the model is; None: as its parameters say.
        batch_first: Whether data are (B, T, ...) rather than (T, B, ...), where neither a `Batch` nor a loader says it;
            None: as the model's layers say.
        factory: Returns (model, loss_fn, optimizer) made anew, where these cannot be pickled.

    Raises:
        DoesNotFitError: Nothing that keeps the result the same fits; it says what would.
        LowtideError: Something else is not as it must be.
    """
    begun = time.monotonic()
    task = Task.of(model, loss_fn, optimizer, budget=budget, precision=precision, device=device, factory=factory)
    read = partial(read_workload, model, data=data, sample=sample, lengths=lengths, batch_first=batch_first)
    sizes = sizes_to_try(data, lengths) if batch_size == "auto" else [_checked(batch_size)]
    asked = f"{budget}, auto" if batch_size == "auto" else budget
    workload = task.fitted(read(batch_size=sizes[0]))
    name = task.fingerprint(workload)
    made = cache.cached(name, task.budget, asked)
    if made is None:
        made = _for_fastest_size(task, read, sizes) if batch_size == "auto" else _make(task, workload)
        made = replace(made, fingerprint=name)
        cache.keep(made, asked)
    return replace(made, planning_seconds=time.monotonic() - begun)


def fits(
    model: nn.Module,
    loss_fn: Any,  # noqa: ANN401 - a function or a module
    *,
    optimizer: Optimizer,
    data: Any = None,  # noqa: ANN401 - as plan takes it
    sample: Any = None,  # noqa: ANN401 - as plan takes it
    lengths: ArrayLike | None = None,
    batch_size: int,
    budget: int | str | None = None,
    precision: str = "float32",
    device: torch.device | str | None = None,
    batch_first: bool | None = None,
    factory: Factory | None = None,
) -> Fit:
    """Say whether training fits into a budget at all, and why, without a search for the fastest way.

    The arguments are those of `plan`. A few small probes tell what the leanest way of training takes.
    """
    task = Task.of(model, loss_fn, optimizer, budget=budget, precision=precision, device=device, factory=factory)
    read = partial(read_workload, model, data=data, sample=sample, lengths=lengths, batch_first=batch_first)
    workload = task.fitted(read(batch_size=_checked(batch_size)))
    try:
        with planning(task, workload, foreach=False if task.copies_for_foreach else None) as maker:
            least = maker.floor()
    except DoesNotFitError as error:
        return Fit(fits=False, why=f"{error.what}: {error.why}", floor=error.floor)
    words = f"at least {in_words(least)} of {in_words(task.budget.bytes)} are taken ({task.budget.source})"
    return Fit(fits=least <= task.budget.bytes, why=words, floor=least)


def _make(task: Task, workload: Workload) -> Plan:
    """The plan; where nothing fits, once more with an optimizer that makes no copies of all parameters at once."""
    try:
        with planning(task, workload) as maker:
            return maker.make()
    except DoesNotFitError:
        if not task.copies_for_foreach:
            raise
        with planning(task, workload, foreach=False) as maker:
            return maker.make()


def _checked(batch_size: object) -> int:
    if type(batch_size) is not int or batch_size < 1:
        raise LowtideError(
            what=f"batch_size={batch_size!r}",
            why="it counts the sequences of one optimizer step",
            fix='give a whole number of at least 1, or "auto"',
        )
    return batch_size


def _for_fastest_size(task: Task, read: Callable[..., Workload], sizes: Sequence[int]) -> Plan:
    """The plan of the batch size of highest throughput that fits, with those that were tried."""
    tried: list[SizeTried] = []
    best: tuple[float, Plan] | None = None
    for size in [*sizes, 1]:
        if size == 1 and best is not None:
            break
        workload = task.fitted(read(batch_size=size))
        try:
            made = _make(task, workload)
        except DoesNotFitError:
            if size == 1:
                raise
            tried.append(SizeTried(size, fits=False, steps_per_second=0.0))
            continue
        speed = workload.epoch_steps / made.seconds_per_epoch
        tried.append(SizeTried(size, fits=True, steps_per_second=speed))
        if best is None or speed > best[0] * _WORTH_LARGER:
            best = speed, made
    assert best is not None
    return replace(best[1], sizes_tried=tuple(tried))
