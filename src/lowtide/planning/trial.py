"""One measurement of some training steps: what is asked of a probe, and what it answers. Plain values, for JSON."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.step.choice import Choice

OVER = 97
"""The exit status of a probe that held more than it may."""


@dataclass(frozen=True)
class Trial:
    """Steps of training to be run."""

    choice: Choice
    """How. Its steps are those of the batch."""
    rows: int
    """Sequences of the batch: one micro-batch, or several of `choice.rows`."""
    repeats: int = 4
    """Steps; the first is not the peak."""
    seconds: float = 60.0
    """After which no further step is begun."""
    anew: bool = False
    """Whether the step is made anew, as training makes it: what it looks at first is part of its first peak."""
    foreach: bool | None = None
    """Whether the optimizer works on all parameters at once; None: as it is set."""


@dataclass(frozen=True)
class Reading:
    """What a trial showed."""

    growth: int
    """Bytes at the highest, above what the child held before its first step; on a GPU what its allocator reserved. What
    earlier trials left behind, but for the first, is not in it."""
    left: int
    """Bytes that this trial left behind: libraries keep something for each shape that they have seen."""
    state: int
    """Bytes of the optimizer's state."""
    held: int
    """Bytes after the steps, gradients and batch let go: parameters' state, and what libraries took for themselves."""
    step_seconds: float
    """Of the fastest step, without the optimizer."""
    optimizer_seconds: float
    steps: int
    """That were run."""
