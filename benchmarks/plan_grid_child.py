"""One drawn task, and every choice for a few of its batches really run: which are the fastest that fit the budget?

An epoch is cut into `_SAMPLES` parts of equal work, from short batches to long ones; the batch in the middle of each
stands for it. A choice fits where the highest that this process rose to is within the budget, on that batch and on the
largest for which the plan has the same choice. The fastest few and the plan's own are then timed in turns, and the best
of each counts.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import lowtide
from benchmarks.plan_case import Case, draw_case
from benchmarks.plan_rivals_child import batches_of
from lowtide.errors import LowtideError
from lowtide.memory import watch
from lowtide.planning.manner import Manner, chunks_of
from lowtide.planning.search import row_counts
from lowtide.planning.task import Task
from lowtide.planning.workload import Workload, read_workload
from lowtide.step.choice import Choice

_SAMPLES = 3
_HOPELESS = 3.0
"""Time, in that of the fastest so far that fits, above which fewer rows of the same way of running are not tried."""
_NEAR = 1.3
"""Time, in that of the fastest, up to which a choice is timed again."""
_FINALISTS = 6
_TURNS = 5
_FEWEST_TURNS = 2
_TURNS_SECONDS = 30.0
"""After which no further turn is begun."""
_BATCHES = 2
_LONG_SECONDS = 0.2


@dataclass(frozen=True)
class Run:
    """What a batch took under a choice."""

    choice: Choice
    seconds: float
    peak: int
    """The highest that this process rose to, in bytes."""

    def better(self, other: Run) -> Run:
        """The faster time of two runs of a choice, and the higher peak."""
        return replace(self, seconds=min(self.seconds, other.seconds), peak=max(self.peak, other.peak))

    def told(self) -> dict[str, Any]:
        """Plain values."""
        choice = self.choice
        kept = f", {choice.keep_chunks} chunks kept" if choice.keep_chunks else ""
        how = f"{choice.rows} rows {Manner.of(choice)}{kept}"
        return {"how": how, "seconds": self.seconds, "peak": self.peak}


@dataclass(frozen=True)
class Sample:
    """A batch that stands for a part of an epoch."""

    rows: int
    steps: int
    stands_for: float
    """Batches like it."""


@dataclass(frozen=True)
class _OneChoice:
    """A plan for batches of one size."""

    choices: tuple[Choice, ...]
    precision: str


def run_grid(number: int) -> dict[str, Any]:
    """Plan a case, and time every choice."""
    begun = time.monotonic()
    case = draw_case(number)
    model = case.model()
    optimizer = case.make_optimizer(model)
    lengths = case.sequence_lengths()
    asked = case.question(optimizer)
    floor = lowtide.fits(model, case.loss(), **asked)
    budget = case.budget(model, floor.floor)
    plan = lowtide.plan(model, case.loss(), budget=budget, **asked)
    workload = read_workload(model, sample=asked["sample"], lengths=lengths, batch_size=case.batch_size)
    task = Task.of(model, case.loss(), optimizer, budget=budget, precision=case.precision, device=None, factory=None)
    gc.collect()
    gc.freeze()  # libraries' objects are many: looking through them takes longer than a batch
    runner = _Runner(case, model, optimizer, budget)
    manners = [*task.whole_manners(), *task.stream_manners(workload)]
    samples = samples_of(batches_of(case, case.batch_size))
    found = [_compare(runner, plan, workload, sample, manners) for sample in samples]
    return {
        "case": str(case),
        "budget": budget,
        "floor": floor.floor,
        "planned_seconds": plan.seconds_per_epoch,
        "planned_peak": plan.peak_bytes,
        "planning_seconds": plan.planning_seconds,
        "samples": found,
        "seconds": time.monotonic() - begun,
    }


def samples_of(sizes: Sequence[tuple[int, int]]) -> list[Sample]:
    """Of an epoch's batches (rows, steps), those in the middle of parts of equal work."""
    ascending = sorted(sizes, key=lambda size: size[1])
    work = np.cumsum([rows * steps for rows, steps in ascending])
    part = float(work[-1]) / _SAMPLES
    found: dict[tuple[int, int], float] = {}
    for place in np.searchsorted(work, part * (np.arange(_SAMPLES) + 0.5)):
        rows, steps = ascending[place]
        found[rows, steps] = found.get((rows, steps), 0.0) + part / (rows * steps)
    return [Sample(*size, stands_for) for size, stands_for in found.items()]


class _Runner:
    """Runs batches under one choice after another."""

    def __init__(self, case: Case, model: torch.nn.Module, optimizer: torch.optim.Optimizer, budget: int) -> None:
        self.budget = budget
        self._case, self._optimizer = case, optimizer
        self._step = lowtide.PlannedStep(model, case.loss(), self._plan(Choice(1, 1, None)))

    def run(self, choice: Choice, rows: int, steps: int) -> Run:
        """Two batches of a size, one made while the one before is there; the faster counts."""
        return self._run(choice, rows, steps, _BATCHES)

    def glance(self, choice: Choice, rows: int, steps: int) -> Run:
        """The same, of a single batch where that takes long."""
        first = self._run(choice, rows, steps, 1)
        return first if first.seconds > _LONG_SECONDS else self._run(choice, rows, steps, 1).better(first)

    def _run(self, choice: Choice, rows: int, steps: int, batches: int) -> Run:
        _let_go()
        self._step.follow(self._plan(choice))
        seconds = []
        with watch() as peak:
            for batch in (self._case.batch(rows, steps, seed=seed) for seed in range(batches)):
                begun = time.perf_counter()
                self._step(batch)
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
                seconds.append(time.perf_counter() - begun)
            del batch
        return Run(choice, min(seconds), peak.bytes)

    def _plan(self, choice: Choice) -> _OneChoice:
        return _OneChoice((choice,), self._case.precision)


def _compare(
    runner: _Runner, plan: lowtide.Plan, workload: Workload, sample: Sample, manners: list[Manner]
) -> dict[str, Any]:
    bucket = next(one for one in plan.buckets if sample.steps <= one.choice.steps)
    here = (workload.steps <= bucket.choice.steps) & (workload.steps >= sample.steps)
    largest = int(workload.rows[here].max()), int(workload.steps[here].max())
    planned = bucket.choice
    tried = _all_run(runner, planned, sample, manners)
    fitting = sorted((one for one in tried if one.peak <= runner.budget), key=lambda one: one.seconds)
    finalists: list[Run] = []
    for one in fitting:
        if len(finalists) == _FINALISTS or (finalists and one.seconds > _NEAR * finalists[0].seconds):
            break
        again = runner.run(one.choice, *largest)
        if again.peak <= runner.budget:
            finalists.append(replace(one, peak=max(one.peak, again.peak)))
    own = runner.run(planned, sample.rows, sample.steps)
    own = replace(own, peak=max(own.peak, runner.run(planned, *largest).peak))
    runs = [own, *(one for one in finalists if one.choice != planned)]
    best = in_turns(runs, lambda choice: runner.glance(choice, sample.rows, sample.steps))
    return {
        "rows": sample.rows,
        "steps": sample.steps,
        "stands_for": sample.stands_for,
        "largest": largest,
        "run": len(tried),
        "fitting": len(fitting),
        "plan": best[0].told(),
        "best": min(best, key=lambda one: one.seconds).told(),
        "finalists": [one.told() for one in best],
    }


def _all_run(runner: _Runner, planned: Choice, sample: Sample, manners: list[Manner]) -> list[Run]:
    """Every choice on one batch, but for those that can only be slower than what was slow."""
    runner.run(planned, sample.rows, sample.steps)  # what is found out once about a model
    found: list[Run] = []
    fastest = float("inf")
    for rows_of_manner in _grid(planned.steps, sample, manners):
        for choice in rows_of_manner:
            try:
                one = runner.glance(choice, sample.rows, sample.steps)
            except LowtideError:
                break  # the step refuses to run this model so, whatever the rows
            found.append(one)
            if one.peak <= runner.budget:
                fastest = min(fastest, one.seconds)
            if one.seconds > _HOPELESS * fastest:
                break
    return found


def _grid(steps: int, sample: Sample, manners: list[Manner]) -> Iterator[list[Choice]]:
    """The planner's choices: for each way of running all numbers of rows, falling."""
    for manner in manners:
        if manner.chunk_steps is not None and manner.chunk_steps >= sample.steps:
            continue
        chunks = chunks_of(manner.choice(steps, 1))
        for kept in sorted({0, chunks // 2, chunks}) if manner.chunk_steps else [0]:
            yield [manner.choice(steps, rows, kept) for rows in row_counts(sample.rows)]


def in_turns(runs: list[Run], run: Callable[[Choice], Run]) -> list[Run]:
    """All of them under the same conditions: what was timed before, when the machine was another, does not count."""
    runs = [replace(one, seconds=float("inf")) for one in runs]
    begun = time.monotonic()
    for turn in range(_TURNS):
        if turn >= _FEWEST_TURNS and time.monotonic() - begun > _TURNS_SECONDS:
            break
        runs = [run(one.choice).better(one) for one in runs]
    return runs


def _let_go() -> None:
    """As a process that runs nothing but this choice: what choices before left is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
