"""Coefficients that are there are found again, none of them negative, and a proof's point is met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.planning.manner import chunks_of, live_steps
from lowtide.planning.models import ByteModel, TimeModel
from lowtide.step import Choice

WHOLE = [(16, 32), (4, 32), (16, 96), (1, 256), (32, 64)]
STREAMS = [(16, 96, 0), (4, 96, 0), (16, 96, 3), (16, 256, 0), (2, 256, 5)]
CHUNK = 32
COEFFICIENTS = st.tuples(
    st.floats(1e5, 1e8), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(10, 1e4), st.floats(0, 1e4)
)


def choices(*, streams: bool) -> list[Choice]:
    if streams:
        return [Choice(steps, rows, None, CHUNK, kept) for rows, steps, kept in STREAMS]
    return [Choice(steps, rows, "gates") for rows, steps in WHOLE]


def taken(choice: Choice, coefficients: tuple[float, ...]) -> float:
    constant, row, step, cell, boundary = coefficients
    live, rows = live_steps(choice), choice.rows
    return constant + rows * row + live * step + rows * live * cell + rows * (chunks_of(choice) - 1) * boundary


@pytest.mark.parametrize("streams", [False, True])
@given(COEFFICIENTS, st.integers(1, 512), st.integers(1, 20000), st.integers(0, 4))
def test_bytes_are_predicted_far_from_the_probes(
    streams: bool, coefficients: tuple[float, ...], rows: int, steps: int, kept: int
) -> None:
    model = ByteModel()
    for choice in choices(streams=streams):
        model.add(choice, round(taken(choice, coefficients)))
    asked = Choice(steps, rows, None, CHUNK, kept) if streams else Choice(steps, rows, "gates")
    assert model.predict(asked) == pytest.approx(taken(asked, coefficients), rel=0.01)


@pytest.mark.parametrize("streams", [False, True])
@given(st.tuples(st.floats(1e-4, 1e-2), st.floats(1e-6, 1e-4), st.floats(1e-7, 1e-5)), st.integers(1, 99))
def test_seconds_are_predicted_far_from_the_probes(
    streams: bool, coefficients: tuple[float, float, float], rows: int
) -> None:
    def seconds(choice: Choice) -> float:
        constant, step, cell = coefficients
        return constant + step * choice.steps + cell * choice.rows * choice.steps

    model = TimeModel()
    for choice in choices(streams=False):
        model.add(choice, seconds(choice))
    assert model.predict(Choice(5000, rows, "gates")) == pytest.approx(seconds(Choice(5000, rows, "gates")), rel=1e-3)
    if streams:
        kept = [model.predict(Choice(320, rows, None, CHUNK, count)) for count in range(11)]
        assert kept == sorted(kept, reverse=True)
        assert kept[-1] < kept[0]


@given(st.lists(st.floats(1e3, 1e9), min_size=5, max_size=5), st.integers(1, 512), st.integers(1, 20000))
def test_whatever_probes_say_more_is_never_predicted_to_take_less(grown: list[float], rows: int, steps: int) -> None:
    model, timed = ByteModel(), TimeModel()
    for choice, size in zip(choices(streams=False), grown, strict=True):
        model.add(choice, int(size))
        timed.add(choice, size * 1e-9)
    for one in (model, timed):
        here = one.predict(Choice(steps, rows, "gates"))
        assert here >= 0
        assert one.predict(Choice(steps, rows + 1, "gates")) >= here
        assert one.predict(Choice(steps + 1, rows, "gates")) >= here


@given(COEFFICIENTS, st.lists(st.floats(-0.05, 0.05), min_size=5, max_size=5), st.floats(0.8, 1.25))
def test_a_proof_counts_more_than_probes_that_say_otherwise(
    coefficients: tuple[float, ...], noise: list[float], off: float
) -> None:
    model = ByteModel()
    for choice, error in zip(choices(streams=False), noise, strict=True):
        model.add(choice, round(taken(choice, coefficients) * (1 + error)))
    proved = Choice(2000, 64, "gates")
    measured = round(taken(proved, coefficients) * off)
    model.add(proved, measured, proof=True)
    assert model.predict(proved) == pytest.approx(measured, rel=0.03)


def test_what_rounding_leaves_is_not_taken_for_a_coefficient() -> None:
    model = ByteModel()
    for choice in choices(streams=False):
        model.add(choice, 1000 * choice.rows * choice.steps)
    assert model.predict(Choice(1, 1, "gates")) == pytest.approx(1000, rel=1e-6)
    assert model.predict(Choice(100_000, 500, "gates")) == pytest.approx(1000 * 100_000 * 500, rel=1e-6)


def test_one_probe_is_met_and_nothing_grown_is_no_mistake() -> None:
    model = ByteModel()
    only = Choice(16, 4, "gates")
    model.add(only, 12345)
    assert model.predict(only) == pytest.approx(12345)
    nothing = ByteModel()
    nothing.add(only, -5)
    assert 0 <= nothing.predict(only) <= 1
    assert np.isfinite(nothing.predict(Choice(10**6, 10**4, "gates")))


def test_of_fits_that_are_as_good_the_one_of_fewest_coefficients_is_taken() -> None:
    model = ByteModel()
    for rows, steps in [(2, 5), (4, 3)]:  # 1000 a row and a step would do as well
        model.add(Choice(steps, rows, "gates"), 7000)
    assert model.predict(Choice(100, 100, "gates")) == pytest.approx(7000)
