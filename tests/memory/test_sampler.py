"""The thread that looks at memory: what it raises comes out, and it looks the less often the more a look costs."""

from __future__ import annotations

import threading
import time

import pytest

from lowtide.memory.pace import SHARE, Pace
from lowtide.memory.sampler import Sampler


def test_what_a_look_raises_is_raised_where_the_figures_are_waited_for() -> None:
    looked = threading.Event()

    def fail() -> None:
        looked.set()
        raise LookupError

    sampler = Sampler(fail)
    sampler.start()
    assert looked.wait(60)
    with pytest.raises(LookupError):
        sampler.stop()


def test_it_looks_until_it_is_stopped() -> None:
    looks = threading.Semaphore(0)
    sampler = Sampler(looks.release)
    sampler.start()
    for _ in range(3):
        assert looks.acquire(timeout=60)
    sampler.stop()
    assert "lowtide-memory" not in [thread.name for thread in threading.enumerate()]


def test_what_was_dear_is_not_due_before_many_times_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace()
    assert pace.due()
    pace.spent(0.5)
    now[0] += 0.5 * SHARE - 1
    assert not pace.due()
    now[0] += 1
    assert pace.due()
