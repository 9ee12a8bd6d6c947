"""Threads change the time a call takes and nothing else: not one bit of its results, nor who may call and when."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import kernels
from tests.kernels.cases import Case, drawn_cases
from tests.kernels.driver import KEEPS, KeepName, Session, Settings, compute
from tests.kernels.reference import CELLS, Arrays, CellName, Problem, Weights

ROOT = Path(__file__).parents[2]
DEADLINE = 120
"""Seconds after which a child counts as stuck."""
RAGGED = Case("lstm", 19, 37, 2, 2, (9, 7, 7, 3, 1), settings=Settings(layout="packed", chunk_steps=3))

every_cell = pytest.mark.parametrize("cell", CELLS)


def run_case(case: Case) -> Arrays:
    """Outputs and gradients."""
    return compute(case.problem(), case.settings, case.gradients())


def assert_same_bits(one: Arrays, other: Arrays) -> None:
    """Compare by value, zeros by sign as well."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.tobytes() == other[name].tobytes(), name


@every_cell
@given(st.data())
def test_any_number_of_threads_gives_the_same_bits(cell: CellName, data: st.DataObject) -> None:
    case, threads = data.draw(drawn_cases(cell)), data.draw(st.sampled_from((2, 3, 5)))
    assert_same_bits(run_case(case.but(threads=1)), run_case(case.but(threads=threads)))


@every_cell
@pytest.mark.parametrize("keep", KEEPS)
def test_any_number_of_threads_gives_the_same_bits_where_they_share_the_units(cell: CellName, keep: KeepName) -> None:
    # 520 units, so that even the plain cell's weights exceed a core's cache; sequences end one by one, so that threads
    # change between sharing sequences and sharing units.
    settings = Settings(layout="padded", keep=keep, chunk_steps=2)
    for lengths in ((4,), (6, 4, 4, 2, 1)):
        case = Case(cell, 5, 520, lengths=lengths, settings=settings)
        alone = run_case(case)
        for threads in (2, 3, 5):
            assert_same_bits(alone, run_case(case.but(threads=threads)))


@every_cell
def test_every_run_gives_the_same_bits(cell: CellName) -> None:
    case = replace(RAGGED, cell=cell).but(threads=3)
    first = run_case(case)
    for _ in range(10):
        assert_same_bits(first, run_case(case))


def test_two_python_threads_at_once_compute_what_each_computes_alone() -> None:
    cases = [replace(RAGGED, cell=cell, seed=seed).but(threads=2) for cell in CELLS for seed in range(2)]
    alone = [run_case(case) for case in cases]
    with ThreadPoolExecutor(max_workers=2) as callers:
        for _ in range(5):
            for one, other in zip(alone, callers.map(run_case, cases), strict=True):
                assert_same_bits(one, other)


# ---- after fork ------------------------------------------------------------------------------------------------------


def exit_status(child: int, alive: int) -> int:
    """Wait until a child has closed its end of a pipe, and reap it; one that is stuck is killed."""
    ended, _, _ = select.select([alive], [], [], DEADLINE)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(alive)
    assert ended, f"the child of fork was still busy after {DEADLINE} s"
    return os.waitstatus_to_exitcode(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_child_of_fork_computes_the_same_with_threads_of_its_own(threads: int) -> None:
    case = RAGGED.but(threads=threads)
    wanted = run_case(RAGGED.but(threads=2))  # the parent has workers, of which the child inherits none
    alive, closes_at_exit = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert_same_bits(wanted, run_case(case))
        except BaseException:  # noqa: BLE001 - nothing may escape into the parent's test run
            os._exit(1)
        os._exit(0)
    os.close(closes_at_exit)
    assert exit_status(child, alive) == 0
    assert_same_bits(wanted, run_case(case))


# ---- the caller's floating-point mode --------------------------------------------------------------------------------

# Bytes of the C library's fenv_t, where in it the control word lies, and its bits for "denormals are zero".
FLUSH = {"x86_64": (32, 28, 0x8040), "aarch64": (8, 0, 1 << 24)}
DENORMAL = 2.0**-140


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Let this thread, and no other, treat denormal numbers as zero."""
    size, place, bits = FLUSH[platform.machine()]
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = ctypes.create_string_buffer(size)
    assert libm.fegetenv(before) == 0
    flushing = np.frombuffer(before.raw, np.uint8).copy()
    flushing[place : place + 4].view(np.uint32)[0] |= bits
    assert libm.fesetenv(ctypes.create_string_buffer(flushing.tobytes(), size)) == 0
    try:
        yield
    finally:
        assert libm.fesetenv(before) == 0


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() not in FLUSH,
    reason="the mode is set through glibc's fenv_t",
)
def test_workers_take_over_the_callers_floating_point_mode_and_give_it_back() -> None:
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    x = np.full((1, 6, 1), DENORMAL)
    problem = Problem("rnn_relu", x, np.ones(6, np.int64), (Weights(one, zero, None, None),))
    session = Session(problem, Settings(threads=3))
    y = session.y.memory
    call = session.forward_call()
    for _ in range(2):
        kernels.forward(call)
        assert (y == np.float32(DENORMAL)).all()
        with flushing_denormals():
            kernels.forward(call)
        assert (y == 0).all()


# ---- an OpenMP team --------------------------------------------------------------------------------------------------

OPENMP_CHILD = """
import ctypes, sys
from pathlib import Path
from lowtide import kernels
from tests.kernels import test_threads as own

alone = own.run_case(own.RAGGED)
assert kernels.team_source() == "own"
assert not kernels.adopt_openmp("no such library")
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
assert kernels.adopt_openmp(sys.argv[1])
assert kernels.team_source() == "openmp"
for threads in (1, 2, 3, 5):
    own.assert_same_bits(alone, own.run_case(own.RAGGED.but(threads=threads)))
own.test_two_python_threads_at_once_compute_what_each_computes_alone()
for threads in (2, 3):
    own.test_a_child_of_fork_computes_the_same_with_threads_of_its_own(threads)
if own.platform.libc_ver()[0] == "glibc" and own.platform.machine() in own.FLUSH:
    own.test_workers_take_over_the_callers_floating_point_mode_and_give_it_back()
print("done")
"""


def test_on_an_openmp_team_the_results_and_the_rules_are_the_same() -> None:
    # In a child: from then on a process stays with that team.
    runtime = ctypes.util.find_library("gomp")
    if runtime is None:
        pytest.skip("no libgomp here")
    command = [sys.executable, "-c", OPENMP_CHILD, runtime]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (child.stdout, child.returncode) == ("done\n", 0), child.stderr
