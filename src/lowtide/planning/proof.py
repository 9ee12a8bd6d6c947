"""A plan is proved before it is made: its worst batches run in a child, and what they take corrects the models.

The child stands beside the process that asks, and both together stay inside the budget; so where a plan uses most of
it, the largest batch that fits beside is run instead, and the models tell the rest. Of a batch, two micro-batches are
run: what the others hold meanwhile is known to the byte. Long sequences are cut where four steps of them would take
minutes: a stream is proved on a few chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowtide.errors import LowtideError
from lowtide.planning.calibration import Calibration
from lowtide.planning.manner import Manner, chunks_of
from lowtide.planning.probe import TooLarge
from lowtide.planning.search import Found
from lowtide.planning.workload import Workload
from lowtide.step.choice import Choice

_STEPS = 4
_PROVED = 2
"""Choices that are run: those that take most."""
_SHARES = (0.7, 0.3)
"""Of the time, for the worst and the next."""
_SHRINK = 0.7
_USED = 0.92
"""Of the room that a child has, how much a proof is made to take: one that is stopped costs a new child."""


@dataclass(frozen=True)
class Proof:
    """What a run of the worst batches showed."""

    share: float
    """Of the predicted bytes, how much was really run."""
    error: float
    """Measured / predicted - 1, of what was run."""
    exact: bool
    """Whether the worst batch was run whole."""


def prove(found: list[Found], calibration: Calibration, workload: Workload, *, room: float, seconds: float) -> Proof:
    """Run the worst batches, and let the models learn from them.

    Args:
        found: The choices of a plan.
        calibration: The models and the child.
        workload: What is trained on.
        room: Bytes that the child may take above what it holds without training.
        seconds: That all of it may take, about.

    Raises:
        LowtideError: Not even a small part could be run.
    """
    worst = sorted(found, key=lambda one: one.bytes, reverse=True)
    different: dict[tuple[Manner, int], Found] = {}
    for one in worst:
        different.setdefault((Manner.of(one.choice), one.choice.rows), one)
    chosen = list(different.values())[:_PROVED]
    shares = _SHARES if len(chosen) > 1 else (1.0,)
    proofs = [
        _prove(one, calibration, workload, room=room, seconds=share * seconds / (_STEPS * _micro_batches(one)))
        for one, share in zip(chosen, shares, strict=True)
    ]
    return max(proofs, key=lambda proof: abs(proof.error)) if not proofs[0].exact else proofs[0]


def _prove(one: Found, calibration: Calibration, workload: Workload, *, room: float, seconds: float) -> Proof:
    models = calibration.models[Manner.of(one.choice)]
    run = _affordable(one, calibration, workload, room=room, seconds=seconds)
    while True:
        rows = min(workload.batch_size, 2 * run.rows)
        batch = workload.batch_bytes(rows, run.steps)
        predicted = models.bytes.predict(run) + batch
        try:
            reading = calibration.trial(run, repeats=_STEPS, proof=True)
            break
        except TooLarge:
            smaller = _smaller(run)
            if smaller == run:
                raise LowtideError(
                    what="no batch of the plan could be run beside this process inside the budget",
                    why="a plan is proved before training starts, and both processes count",
                    fix="give a larger budget, or plan in a process that holds less",
                ) from None
            run = smaller
    error = reading.growth / max(1.0, predicted) - 1
    return Proof(models.bytes.predict(run) / max(1.0, models.bytes.predict(one.choice)), error, exact=run == one.choice)


def _micro_batches(one: Found) -> int:
    return min(2, -(-one.bucket.rows // one.choice.rows))


def _affordable(one: Found, calibration: Calibration, workload: Workload, *, room: float, seconds: float) -> Choice:
    """The choice itself, or with fewer rows or steps, as bytes and seconds allow."""
    models = calibration.models[Manner.of(one.choice)]
    run = one.choice
    while models.seconds.predict(run) > seconds:
        shorter = replace(run, steps=max(8, int(run.steps * _SHRINK)))
        if chunks_of(shorter) < max(3, 1 + run.keep_chunks) and run.chunk_steps is not None:
            break
        if shorter == run:
            break
        run = shorter
    while models.bytes.predict(run) + workload.batch_bytes(2 * run.rows, run.steps) > _USED * room:
        smaller = _smaller(run)
        if smaller == run:
            break
        run = smaller
    return run


def _smaller(run: Choice) -> Choice:
    rows = max(1, int(run.rows * _SHRINK))
    if rows < run.rows:
        return replace(run, rows=rows)
    return replace(run, steps=max(8, int(run.steps * _SHRINK)), keep_chunks=int(run.keep_chunks * _SHRINK))
