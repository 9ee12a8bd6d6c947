"""The kernels give the reference's numbers on every instruction set, in every layout, under every keep mode.

Bounds, for each tensor relative to its largest entry: 1e-12 in float64, 5e-6 in float32. Terms of about one may cancel
to almost nothing (a saturated tanh's slope 1 - y y, for one): a tensor whose entries are all below `FLOOR` is measured
against that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide import kernels
from tests.kernels.cases import Case, drawn_cases
from tests.kernels.driver import KEEPS, KeepName, Session, Settings, compute
from tests.kernels.reference import CELLS, Arrays, CellName, differentiate, distance_to_kink, run

BOUNDS = {"float32": 5e-6, "float64": 1e-12}
KINKS = {"float32": 4e-6, "float64": 1e-12}
"""Sums nearer to relu's kink may round to its other side, where the gradient is another one."""
FLOOR = 1 / 2

every_isa = pytest.mark.parametrize("isa", kernels.usable_isas())
every_cell = pytest.mark.parametrize("cell", CELLS)
every_keep = pytest.mark.parametrize("keep", KEEPS)


def expected(case: Case) -> Arrays:
    """Outputs and gradients of the reference, named as `compute` names them."""
    problem = case.problem()
    return run(problem) | {f"d{name}": g for name, g in differentiate(problem, case.gradients()).items()}


def expected_names(case: Case) -> set[str]:
    """Name what must come out: the outputs, and every gradient that is wanted and exists."""
    lstm = case.cell == "lstm"
    names = {"y", "hT", "cT"} if lstm else {"y", "hT"}
    wanted = case.settings.wanted
    names |= {f"d{name}" for name in wanted & ({"x", "h0", "c0"} if lstm else {"x", "h0"})}
    present = wanted & ({"w_ih", "w_hh"} | case.given)
    return names | {f"d{n}.{i}" for n in present - {"h0", "c0"} for i in range(case.layers * case.directions)}


def assert_close(got: Arrays, wanted: Arrays, bound: float) -> None:
    """Compare tensor by tensor; NaN is never close."""
    for name, values in got.items():
        assert values.shape == wanted[name].shape, name
        largest = max(FLOOR, float(np.abs(wanted[name]).max(initial=0)))
        error = float(np.abs(values - wanted[name]).max(initial=0)) / largest
        assert error <= bound, f"{name}: {error:.1e} of its largest entry, {largest:.2g}"


def assert_exact(case: Case) -> None:
    """Compute the case and compare all of it with the reference."""
    got = compute(case.problem(), case.settings, case.gradients())
    assert got.keys() == expected_names(case)
    assert_close(got, expected(case), BOUNDS[case.settings.dtype])


@every_isa
@every_cell
@given(st.data())
def test_drawn_cases_agree_with_the_reference(isa: str, cell: CellName, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(("float32", "float64")))
    case = data.draw(drawn_cases(cell)).but(isa=isa, dtype=dtype)
    assume(distance_to_kink(case.problem()) > KINKS[dtype])
    assert_exact(case)


@every_isa
@every_cell
@every_keep
def test_one_step_of_one_sequence_with_one_unit(isa: str, cell: CellName, keep: KeepName) -> None:
    assert_exact(Case(cell, 1, 1, lengths=(1,), settings=Settings(isa, keep=keep)))


@every_cell
@every_keep
@pytest.mark.parametrize("directions", [1, 2])
def test_kept_states_may_lie_several_chunks_apart(cell: CellName, keep: KeepName, directions: int) -> None:
    settings = Settings(keep=keep, dtype="float64", chunk_steps=2, chunks_a_state=3)
    for layers in (1, 2):
        assert_exact(Case(cell, layers=layers, directions=directions, lengths=(13, 13), settings=settings))


@every_isa
@every_cell
@every_keep
def test_few_sequences_with_many_units_split_by_units(isa: str, cell: CellName, keep: KeepName) -> None:
    # 300 units: the recurrent weights exceed what one core keeps, so two threads share the units of a sequence; once
    # all but one sequence have ended, the split changes from sequences to units on the way.
    settings = Settings(isa, "float64", keep, chunk_steps=2, threads=2)
    for lengths in ((5,), (5, 2, 2)):
        assert_exact(Case(cell, 9, 300, lengths=lengths, settings=replace(settings, layout="padded")))


@every_isa
@every_cell
def test_many_rows_and_features_go_through_in_several_blocks(isa: str, cell: CellName) -> None:
    # More rows than the weight gradients sum at once, more inputs than a product takes at once, and chunks that are no
    # multiple of the steps whose gates are made at once.
    lengths = tuple(20 - i // 8 for i in range(40))
    settings = Settings(isa, "float64", chunk_steps=15, threads=2, layout="padded")
    assert_exact(Case(cell, 300, 70, lengths=lengths, settings=settings))


@every_isa
@every_cell
@pytest.mark.parametrize("directions", [1, 2])
def test_a_forward_pass_that_keeps_nothing_gives_the_same_outputs(isa: str, cell: CellName, directions: int) -> None:
    case = Case(cell, layers=3, directions=directions, dropout=True, settings=Settings(isa, chunk_steps=2))
    kept = Session(case.problem(), case.settings).forward()
    unkept = Session(case.problem(), case.settings).forward(keeps=False)
    assert_close(kept, expected(case), BOUNDS["float32"])
    assert all(np.array_equal(kept[name], unkept[name]) for name in kept)


@every_cell
def test_what_is_not_a_number_reaches_everything_after_it(cell: CellName) -> None:
    case = Case(cell, lengths=(6, 6, 6))
    problem = case.problem()
    problem.x[2, 1, 0] = np.nan
    y = Session(problem, case.settings).forward()["y"]
    poisoned = np.isnan(y.sum(axis=2))
    assert poisoned[2:, 1].all()
    assert not poisoned[:2].any()
    assert not poisoned[:, [0, 2]].any()


@every_cell
def test_wrong_numbers_would_be_noticed(cell: CellName) -> None:
    case = Case(cell, settings=Settings(dtype="float64"))
    wanted = expected(case)
    for name in expected_names(case):
        got = wanted[name].copy()
        got.flat[0] += 1e-9
        with pytest.raises(AssertionError, match=name):
            assert_close({name: got}, wanted, BOUNDS["float64"])
