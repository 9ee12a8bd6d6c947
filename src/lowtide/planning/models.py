"""What a micro-batch takes, in bytes and in seconds: linear in a few known quantities, fitted to what probes showed.

Bytes of one way of running: a constant (gradients, optimizer state, libraries, workspaces), so much a sequence, so much
a step whose graph exists at once (its nodes) and a sequence and such step (its tensors), and for streams so much a
sequence and chunk (the states between them).
Seconds: a constant, so much a step (layers wait for the step before), so much a sequence and step, and so much a chunk.
None is negative. Bytes are fitted by their errors, seconds by their relative errors; what a plan adds for what scatters
is the planner's.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.manner import chunks_of, live_steps
from lowtide.step.choice import Choice

Floats = NDArray[np.float64]

_PROOF_WEIGHT = 20.0
"""How much more than a small probe a proof counts."""
_SAME = 1e-14
"""Difference of squared relative errors below which the fit with fewer coefficients is taken: what rounding makes."""
_KEPT_SAVES = 0.25
"""Of a stream's time that a graph kept alive saves: one forward of two, and a backward that takes as long as both."""


@dataclass
class ByteModel:
    """Bytes beside the batch itself that one way of running takes, optimizer's step included."""

    _points: list[tuple[Floats, float, float]] = field(default_factory=list)
    _found: Floats | None = None

    def add(self, choice: Choice, grown: int, *, proof: bool = False) -> None:
        """Take in what a trial showed."""
        self._points.append((_byte_terms(choice), max(1.0, float(grown)), _PROOF_WEIGHT if proof else 1.0))
        # What is highest in a small trial, such as the optimizer's step, need not be in a large one: those count more.
        most = max(value for _, value, _ in self._points)
        self._found = _fitted([(terms, value, weight * value / most) for terms, value, weight in self._points])

    def predict(self, choice: Choice) -> float:
        """Bytes of a micro-batch."""
        assert self._found is not None
        return float(_byte_terms(choice) @ self._found)


@dataclass
class TimeModel:
    """Seconds of one micro-batch, forward and backward."""

    _points: list[tuple[Floats, float, float]] = field(default_factory=list)
    _found: Floats | None = None

    def add(self, choice: Choice, seconds: float, *, proof: bool = False) -> None:
        """Take in what a trial showed."""
        plain = max(1e-6, seconds) / _kept_factor(choice)
        self._points.append((_time_terms(choice), plain, _PROOF_WEIGHT if proof else 1.0))
        self._found = _fitted(self._points)

    def predict(self, choice: Choice) -> float:
        """Seconds of a micro-batch."""
        assert self._found is not None
        return float(_time_terms(choice) @ self._found) * _kept_factor(choice)


def _byte_terms(choice: Choice) -> Floats:
    rows = choice.rows
    between = rows * (chunks_of(choice) - 1)
    live = live_steps(choice)
    return np.array([1.0, rows, live, rows * live, between])


def _time_terms(choice: Choice) -> Floats:
    return np.array([1.0, choice.steps, choice.rows * choice.steps, chunks_of(choice) - 1.0])


def _kept_factor(choice: Choice) -> float:
    chunks = chunks_of(choice)
    kept = max(1, choice.keep_chunks)
    return 1.0 if chunks == 1 else 1.0 - _KEPT_SAVES * min(1.0, kept / chunks)


def _fitted(points: list[tuple[Floats, float, float]]) -> Floats:
    """The coefficients of least relative error, none of them negative."""
    terms = np.stack([one / value * weight for one, value, weight in points])
    wanted = np.array([weight for _, _, weight in points])
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-300)
    coefficients: Floats = _not_negative(terms / scale, wanted) / scale
    return coefficients


def _not_negative(terms: Floats, wanted: Floats) -> Floats:
    """Least squares without negative coefficients: the best of all choices of those that are not zero."""
    count = terms.shape[1]
    best, least = np.zeros(count), np.inf
    enough = _SAME * float(np.square(wanted).sum())
    for chosen in sorted(itertools.product((False, True), repeat=count), key=sum):
        mask = np.array(chosen)
        found = np.zeros(count)
        if mask.any():
            found[mask] = np.linalg.lstsq(terms[:, mask], wanted, rcond=None)[0]
        missed = float(np.square(terms @ found - wanted).sum())
        if (found >= 0).all() and missed < least - enough:
            best, least = found, missed
    return best
