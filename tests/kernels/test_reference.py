"""The gradients that the kernels are compared with are right: they agree with finite differences of the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.kernels.cases import RESULTS, Case
from tests.kernels.reference import CELLS, Array, Arrays, CellName, Problem, differentiate, distance_to_kink, run

STEP = 1e-6
BOUND = 1e-7
"""Relative to all entries' size: rounding (1e-16 / STEP) and curvature (STEP^2) leave a tenth of it."""


def loss(problem: Problem, pulled: Arrays) -> float:
    """Add up all results times what pulls at them."""
    return sum(float((result * pulled[name]).sum()) for name, result in run(problem).items())


def moved(problem: Problem, name: str, direction: Array) -> Problem:
    """Go along a direction in one tensor."""
    kind, _, number = name.partition(".")
    if not number:
        return replace(problem, **{kind: getattr(problem, kind) + direction})
    weights = list(problem.weights)
    weights[int(number)] = weights[int(number)]._replace(**{kind: getattr(weights[int(number)], kind) + direction})
    return replace(problem, weights=tuple(weights))


@pytest.mark.parametrize("cell", CELLS)
@given(
    layers=st.integers(1, 2),
    directions=st.integers(1, 2),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any),
    dropout=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_reference_gradients_agree_with_finite_differences(
    cell: CellName, layers: int, directions: int, lengths: list[int], dropout: bool, seed: int
) -> None:
    case = Case(cell, 2, 3, layers, directions, tuple(lengths), 1, dropout, seed=seed)
    problem, pulled = case.problem(), case.gradients()
    assume(distance_to_kink(problem) > 100 * STEP)
    random = np.random.default_rng(seed)
    gradients = differentiate(problem, pulled)
    if cell != "lstm":
        assert not gradients.pop("c0").any() or "cT" in pulled
    for name, gradient in gradients.items():
        direction = random.standard_normal(gradient.shape)
        ahead, behind = (loss(moved(problem, name, sign * STEP * direction), pulled) for sign in (1, -1))
        slope, expected = (ahead - behind) / (2 * STEP), float((gradient * direction).sum())
        size = 1 + float(np.abs(gradient * direction).sum())
        assert abs(slope - expected) <= BOUND * size, name


def test_outputs_past_the_end_are_zero_and_final_states_are_those_of_the_last_step() -> None:
    problem = Case("lstm", lengths=(4, 2, 0), spare_steps=1).problem()
    results = run(problem)
    assert set(results) == set(RESULTS)
    assert not results["y"][~problem.active].any()
    assert (results["hT"][0, 0] == results["y"][3, 0]).all()
    assert (results["hT"][0, 1] == results["y"][1, 1]).all()
    assert problem.h0 is not None
    assert (results["hT"][0, 2] == problem.h0[0, 2]).all()


def test_a_reverse_direction_is_the_forward_direction_on_the_sequence_turned_round() -> None:
    problem = Case("gru", directions=2, lengths=(6, 6)).problem()
    same = replace(problem, weights=(problem.weights[0],) * 2, h0=None)
    turned = replace(same, x=same.x[::-1])
    forward, reverse = np.split(run(same)["y"], 2, axis=2)
    assert np.array_equal(np.split(run(turned)["y"], 2, axis=2)[0][::-1], reverse)
    assert not np.array_equal(forward, reverse)
