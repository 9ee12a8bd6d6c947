"""One drawn task, planned and trained in a process of its own, in a memory cgroup whose limit is the budget."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

import lowtide
from benchmarks.cgroups import enter, set_limit
from benchmarks.plan_case import Case, draw_case
from lowtide.memory import held, watch
from lowtide.planning.workload import read_workload

_OTHER_BATCHES = 2


def run_case(number: int, group: str | None) -> dict[str, Any]:
    """Plan and train a case, and say what was predicted and what was measured."""
    if group is not None:
        enter(Path(group))
    imported = held()
    case = draw_case(number)
    model = case.model()
    optimizer = case.make_optimizer(model)
    lengths = case.sequence_lengths()
    asked = case.question(optimizer)
    begun = time.monotonic()
    floor = lowtide.fits(model, case.loss(), **asked)
    fit_seconds = time.monotonic() - begun
    budget = case.budget(model, floor.floor)
    if group is not None:
        set_limit(Path(group), budget)
    planning: dict[str, Any] = {}
    with watch() as planned:
        begun = time.monotonic()
        plan = lowtide.plan(model, case.loss(), budget=budget, **asked)
        planning["seconds"] = time.monotonic() - begun
    sizes = read_workload(model, sample=asked["sample"], lengths=lengths, batch_size=case.batch_size)
    begun = time.monotonic()
    measured = _train(case, model, optimizer, plan, sizes.rows.tolist(), sizes.steps.tolist())
    seconds = time.monotonic() - begun
    return {
        "case": str(case),
        "imported": imported,
        "budget": budget,
        "floor": floor.floor,
        "fit_seconds": fit_seconds,
        "planning_seconds": planning["seconds"],
        "planning_peak": planned.bytes,
        "parameters": sum(one.numel() for one in model.parameters()),
        "longest": int(lengths.max()),
        "before": plan.before_proof,
        "predicted": plan.peak_bytes,
        "measured": measured,
        "faster_with": plan.faster_with,
        "seconds": seconds,
        "choices": [str(bucket.choice) for bucket in plan.buckets],
        "sure": plan.sure,
    }


def _train(
    case: Case,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    plan: lowtide.Plan,
    rows: list[int],
    steps: list[int],
) -> int:
    """Train on the largest batch, some others, and the largest again; return the highest peak.

    Where libraries' code is read from disk while memory rises, the kernel's mark is known within some megabytes only:
    then its lower end counts. The largest batch comes again when the code is there.
    """
    sizes = sorted(zip(rows, steps, strict=True), key=lambda size: size[0] * size[1])
    middle = sizes[:: max(1, len(sizes) // _OTHER_BATCHES)]
    step = lowtide.PlannedStep(model, case.loss(), plan)
    highest = 0
    batches = (case.batch(*size, seed=seed) for seed, size in enumerate([sizes[-1], *middle, sizes[-1], sizes[-1]]))
    while True:
        with watch() as peak:  # the next batch is made beside the one before, as in a loop over a loader
            batch = next(batches, None)
            if batch is None:
                break
            step(batch)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        highest = max(highest, peak.bytes if peak.exact else peak.at_least)
    return highest
