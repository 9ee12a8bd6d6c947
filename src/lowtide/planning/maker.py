"""One plan being made: probes, models, search, proof, correction.

    probes (calibration.py) -> models (models.py) -> search (search.py) -> proof (proof.py) -> the plan (plan.py)

Where the proof differs from what the models said, they are corrected and the search is made again. What was proved is
kept where it still fits, though another choice looks a little faster. Planning stays inside the budget itself: this
process and its child together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from lowtide.errors import LowtideError
from lowtide.planning.calibration import Calibration
from lowtide.planning.floor import DoesNotFitError, does_not_fit
from lowtide.planning.offers import WORK, offers_for
from lowtide.planning.plan import BucketPlan, Component, Offer, Plan
from lowtide.planning.probe import Prober, TooLarge
from lowtide.planning.proof import Proof, prove
from lowtide.planning.search import Bucket, Found, buckets_of, candidates, search
from lowtide.planning.task import Task
from lowtide.planning.workload import Workload

_BESIDE = 32 << 20
"""Bytes of the budget that planning leaves free."""
_LEAST_ROOM = 48 << 20
"""Bytes without which a child could not run the smallest trial."""
_TRAINED_COPIES = 4
"""Of the parameters, that a child makes in its first step, at most: gradients, states, what an optimizer works in."""
_CHILD_BYTES = 256 << 20
"""Of a child that died before it could say what it holds."""
_ENDLESS = 1 << 62
_MARGIN = 0.015
"""Share by which a predicted growth is raised: peaks scatter with the order of batches and the kernel's counts."""
_UNPROVED_MARGIN = 0.05
"""The same of what was too large to be proved whole, as far as it was not."""
_MARGIN_BYTES = 3 << 20
_ROUNDS = 3
_SMALL_PARAMETERS = 5_000_000
_SMALL_STEPS = 2000
_SMALL_SECONDS = 14.0
"""That planning small models on short sequences may take, about, once a child is there."""
_SECONDS = 40.0
_TIMING_SHARE = 0.4
"""Of these, after which no more finalists are timed."""
_LEAST_PROOF_SECONDS = 5.0
_FINALISTS = 3
"""Ways of running that are timed at full size."""
_FASTER = 1.05
_WORTH = 1.03
"""Relative gain in time for which a choice that was not proved is taken in place of one that was."""
_NEAR = 1.15
"""Relative time up to which a way of running is worth timing."""


class PlanMaker:
    """One plan being made."""

    def __init__(self, task: Task, workload: Workload, calibration: Calibration, room: int) -> None:
        """Nothing is known yet.

        Args:
            task: What is planned.
            workload: For which batches.
            calibration: What is known, and a child to learn more.
            room: Bytes that the child may take above what it holds without training.
        """
        self._task = task
        self._workload = workload
        self._calibration = calibration
        self._room = room
        self._margin = _MARGIN
        small = task.parameters < _SMALL_PARAMETERS and workload.longest <= _SMALL_STEPS
        self._seconds = _SMALL_SECONDS if small else _SECONDS
        self._buckets = buckets_of(workload.rows, workload.steps, workload.repeats, bounds=workload.bounds)

    def make(self) -> Plan:
        """Probe, search, prove, correct.

        Raises:
            DoesNotFitError: Nothing fits.
        """
        self._calibration.learn(self._task.whole_manners())
        found = self._search()
        if any(one is None or one.choice.rows < one.bucket.rows for one in found):
            self._calibration.learn(self._task.stream_manners(self._workload))
        chosen = self._time_finalists(self._chosen())
        before = self._peak(chosen)
        proof: Proof | None = None
        proved, fits = chosen, False
        for _ in range(_ROUNDS):
            left = max(_LEAST_PROOF_SECONDS, self._seconds - self._calibration.seconds)
            proof = prove(chosen, self._calibration, self._workload, room=self._room, seconds=left)
            self._margin = _MARGIN + _UNPROVED_MARGIN * (1 - min(1.0, proof.share))
            proved = self._again(chosen)
            chosen = self._chosen()
            fits = all(one.bytes <= self._allowed for one in proved)
            if fits and _seconds_of(proved) <= _WORTH * _seconds_of(chosen):
                break
        if fits:  # a little slower, maybe, but run
            chosen = proved
        assert proof is not None
        return self._plan(chosen, replace(proof, exact=proof.exact and fits), before)

    def floor(self) -> int:
        """The peak with one sequence at a time, in the leanest way.

        Raises:
            LowtideError: Even the smallest probe took more than there is.
        """
        manners = [*self._task.whole_manners()[-1:], *self._task.stream_manners(self._workload)]
        self._calibration.learn(manners)
        return self._peak([self._floor()])

    def _floor(self) -> Found:
        """The batch that takes most, in the leanest way."""
        leanest = [min(self._candidates(bucket), key=lambda one: one.bytes) for bucket in self._buckets]
        return max(leanest, key=lambda one: one.bytes)

    def _candidates(self, bucket: Bucket) -> list[Found]:
        return list(candidates(bucket, self._calibration.models, self._workload.batch_bytes))

    @property
    def _allowed(self) -> float:
        """Predicted bytes that a choice may take."""
        return (self._task.budget.left - self._beside - _MARGIN_BYTES) / (1 + self._margin)

    def _again(self, chosen: list[Found]) -> list[Found]:
        """The same choices, with what they take as the models have it now."""
        found = []
        for one in chosen:
            every = self._candidates(one.bucket)
            found.append(next(other for other in every if other.choice == one.choice))
        return found

    def _search(self) -> list[Found | None]:
        return search(self._buckets, self._calibration.models, self._workload.batch_bytes, self._allowed)

    def _chosen(self) -> list[Found]:
        found = self._search()
        chosen = [one for one in found if one is not None]
        if len(chosen) < len(found):
            raise self._does_not_fit()
        return chosen

    def _time_finalists(self, chosen: list[Found]) -> list[Found]:
        """Time the ways that look about as fast, for the batches that take most of an epoch."""
        for _ in range(_FINALISTS):
            if self._calibration.seconds > _TIMING_SHARE * self._seconds:
                break
            slowest = max(chosen, key=lambda one: one.seconds)
            allowed = self._task.budget.left - self._beside
            rivals = [
                one
                for one in self._candidates(slowest.bucket)
                if one.bytes <= allowed and one.seconds <= _NEAR * slowest.seconds and one.choice.keep_chunks == 0
            ]
            rivals.sort(key=lambda one: one.seconds)
            untried = next((one for one in rivals if not self._calibration.timed(one.choice)), None)
            if untried is None or not self._calibration.time(untried.choice, room=self._room):
                break
            chosen = self._chosen()
        return chosen

    def _faster_with(self, chosen: list[Found]) -> int | None:
        """The least budget at which an epoch would be faster by `_FASTER`, as the models have it."""
        wanted = _seconds_of(chosen) / _FASTER
        worst = max(one.bytes for one in chosen)
        every = [self._candidates(one.bucket) for one in chosen]
        for level in sorted({one.bytes for found in every for one in found if one.bytes > worst}):
            if _seconds_of([min(_below(found, level), key=lambda one: one.seconds) for found in every]) <= wanted:
                return self._task.budget.held + self._raised(level + self._beside)
        return None

    def _raised(self, growth: float) -> int:
        """A predicted growth with room for what scatters."""
        return int(growth * (1 + self._margin)) + _MARGIN_BYTES

    @property
    def _beside(self) -> int:
        """What is held beside batches and their training."""
        return self._workload.ring_bytes + self._calibration.shape_bytes * self._workload.shapes

    def _peak(self, chosen: list[Found]) -> int:
        worst = max(one.bytes for one in chosen)
        return self._task.budget.held + self._raised(worst + self._beside)

    def _does_not_fit(self) -> DoesNotFitError:
        floor = self._floor()
        parts = self._components(floor)
        return does_not_fit(
            self._task.budget,
            self._peak([floor]),
            parts,
            self._offers(parts, streams=floor.choice.chunk_steps is not None),
        )

    def _components(self, worst: Found) -> tuple[Component, ...]:
        task, workload, calibration = self._task, self._workload, self._calibration
        known = {
            "gradients": task.parameter_bytes,
            "optimizer state": calibration.state_bytes,
            "batch": workload.batch_bytes(worst.bucket.rows, worst.choice.steps),
            "prefetch ring": workload.ring_bytes,
            "kept by libraries for each shape": self._beside - workload.ring_bytes,
            "libraries at work": max(0, calibration.held_bytes - calibration.state_bytes),
        }
        rest = self._raised(worst.bytes + self._beside) - sum(known.values())
        return (
            Component("held before training", task.budget.held),
            *(Component(name, size) for name, size in known.items() if size),
            Component(WORK, max(0, rest)),
        )

    def _offers(self, parts: tuple[Component, ...], *, streams: bool) -> tuple[Offer, ...]:
        return offers_for(
            self._task.model,
            self._task.optimizer,
            parts,
            precision=self._task.precision,
            longest=self._workload.longest,
            typical=int(np.quantile(self._workload.steps, 0.9)),
            streams=streams,
        )

    def _plan(self, chosen: list[Found], proof: Proof, before: int) -> Plan:
        task, workload, calibration = self._task, self._workload, self._calibration
        worst = max(chosen, key=lambda one: one.bytes)
        parts = self._components(worst)
        batches = sum(one.bucket.batches for one in chosen)
        return Plan(
            budget=task.budget.bytes,
            budget_source=task.budget.source,
            peak_bytes=self._peak(chosen),
            base_bytes=task.budget.held,
            before_proof=before,
            device=str(task.device),
            precision=task.precision,
            batch_size=workload.batch_size,
            buckets=tuple(
                BucketPlan(one.choice, one.bucket.rows, one.bucket.batches, round(one.bytes), one.seconds)
                for one in chosen
            ),
            components=parts,
            prefetch_bytes=workload.prefetch_bytes,
            foreach=calibration.foreach,
            seconds_per_epoch=_seconds_of(chosen) + batches * calibration.optimizer_seconds,
            sure=_how_sure(proof, workload, list(calibration.refused.values())),
            faster_with=self._faster_with(chosen),
            offers=self._offers(parts, streams=any(one.choice.chunk_steps is not None for one in chosen)),
            circumstances=task.around,
            fingerprint=task.fingerprint(workload),
        )


@contextmanager
def planning(task: Task, workload: Workload, *, foreach: bool | None = None) -> Iterator[PlanMaker]:
    """A plan being made, with a child to probe with, inside the budget."""
    on_cpu = task.device.type == "cpu"
    allowed = task.budget.left - _BESIDE if on_cpu else _ENDLESS
    with Prober(task.subject(workload), allowed, settled=task.settled, factory=task.factory) as prober:
        try:
            room = allowed - prober.start()
            calibration = Calibration(prober, workload, may_cut_time=task.is_sequential(workload), foreach=foreach)
            yield PlanMaker(task, workload, calibration, room if on_cpu else task.budget.left)
        except TooLarge:
            raise _no_room_to_probe(task, prober.base) from None


def _no_room_to_probe(task: Task, child: int) -> DoesNotFitError:
    parts = (
        Component("held by this process", task.budget.held),
        Component("a child that probes", (child or _CHILD_BYTES) + _LEAST_ROOM),
        Component("its gradients and optimizer", _TRAINED_COPIES * task.parameter_bytes),
        Component("left free meanwhile", _BESIDE),
    )
    return does_not_fit(task.budget, sum(one.bytes for one in parts), parts, ())


def _how_sure(proof: Proof, workload: Workload, refused: list[LowtideError]) -> str:
    told = f" Not possible: {refused[0].what}." if refused else ""
    run = "its worst batch" if proof.exact else f"{min(1.0, proof.share):.0%} of its worst batch"
    return f"Sizes: {workload.told}. Proved by running {run}: {proof.error:+.1%} against the prediction.{told}"


def _seconds_of(found: list[Found]) -> float:
    return sum(one.seconds for one in found)


def _below(found: list[Found], level: float) -> list[Found]:
    return [one for one in found if one.bytes <= level]
