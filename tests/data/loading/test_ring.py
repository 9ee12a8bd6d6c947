"""The ring holds no more than it may, passes errors on, and its thread never outlives it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data.loading.ring import Job, Ring


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lowtide-ring"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert threads() == []


class Counted:
    """Makes numbered things, and knows how many bytes of them it made that were not taken."""

    def __init__(self, sizes: list[int]) -> None:
        """Things of these sizes."""
        self.sizes = sizes
        self.made = 0
        self.taken = 0
        self.most = 0

    def jobs(self) -> Iterator[Job[int]]:
        """One a thing."""
        for number, size in enumerate(self.sizes):
            yield Job(size, lambda number=number: self.make(number))  # type: ignore[misc]

    def make(self, number: int) -> int:
        """Make one."""
        self.made = number + 1
        self.most = max(self.most, sum(self.sizes[self.taken : self.made]))
        return number


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 60))
def test_things_come_in_order_and_never_too_many_are_held(sizes: list[int], limit: int) -> None:
    counted = Counted(sizes)
    ring = Ring(counted.jobs(), limit)
    seen = []
    for number in ring:
        seen.append(number)
        assert ring.held_bytes <= max([limit, *sizes])
        # Later than the ring counts it: an allowance of the one just taken.
        counted.taken = number
    assert seen == list(range(len(sizes)))
    assert counted.most <= max([limit, *sizes]) + max([0, *sizes])


def test_nothing_is_made_beyond_the_limit_while_nobody_takes() -> None:
    made: list[int] = []
    full = threading.Event()

    def jobs() -> Iterator[Job[None]]:
        for number in range(100):
            if number == 3:
                full.set()
            yield Job(10, lambda number=number: made.append(number))  # type: ignore[misc]

    ring = Ring(jobs(), 30)
    assert full.wait(10)
    assert ring.held_bytes <= 30
    next(ring)
    ring.close()
    assert len(made) <= 5


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def fail() -> int:
        raise ValueError("a bad third")

    ring = Ring(iter([Job(1, lambda: 1), Job(1, lambda: 2), Job(1, fail), Job(1, lambda: 4)]), 100)
    assert [next(ring), next(ring)] == [1, 2]
    with pytest.raises(ValueError, match="a bad third"):
        next(ring)
    assert list(ring) == []


def test_an_error_in_the_list_of_jobs_comes_too() -> None:
    def jobs() -> Iterator[Job[int]]:
        yield Job(1, lambda: 1)
        raise KeyError("lost")

    ring = Ring(jobs(), 100)
    assert next(ring) == 1
    with pytest.raises(KeyError, match="lost"):
        next(ring)


def test_a_ring_that_is_dropped_ends_its_thread() -> None:
    ring = Ring((Job(10, lambda: 1) for _ in range(10**9)), 25)
    next(ring)
    assert len(threads()) == 1
    alive = weakref.ref(ring)
    del ring
    gc.collect()
    assert alive() is None
    assert threads() == []


def test_what_is_larger_than_expected_is_counted_as_it_is() -> None:
    made: list[int] = []
    full = threading.Event()

    def jobs() -> Iterator[Job[None]]:
        for number in range(100):
            if number == 2:
                full.set()
            yield Job(10, lambda number=number: made.append(number), lambda _: 30)  # type: ignore[misc]

    ring = Ring(jobs(), 65)
    assert full.wait(10)
    assert ring.held_bytes == 60
    next(ring)
    ring.close()
    assert len(made) <= 4


FORKED = """
import os, sys
from lowtide.data.loading.ring import Job, Ring
from lowtide.errors import LowtideError
ring = Ring((Job(10, lambda: 1) for _ in range(10**9)), 25)
next(ring)
ring._shared.changed.acquire()  # as the ring's thread may hold it at that moment
if child := os.fork():
    ring._shared.changed.release()
    next(ring)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    next(ring)
except LowtideError as error:
    print(error.what)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_fork_is_told_that_the_thread_is_not_there_and_ends() -> None:
    result = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "in a fork of it" in result.stdout


def test_a_closed_ring_is_at_its_end() -> None:
    ring = Ring((Job(1, lambda: 1) for _ in range(10**9)), 5)
    next(ring)
    ring.close()
    assert list(ring) == []
    assert ring.held_bytes == 0
    ring.close()


@pytest.mark.parametrize("how", ["", "sys.exit(3)", "raise SystemExit(3)"])
def test_the_interpreter_ends_while_a_ring_waits(how: str) -> None:
    program = (
        "import sys\n"
        "from lowtide.data.loading.ring import Job, Ring\n"
        "ring = Ring((Job(10, lambda: 1) for _ in range(10**9)), 25)\n"
        f"next(ring)\n{how}\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (3 if how else 0, "")
