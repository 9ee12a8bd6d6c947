"""Progress is told now and then, with the time left; a terminal shows it in one line."""

from __future__ import annotations

import io

import pytest

from lowtide.data.ingestion.progress import Line, Meter, Progress, in_bytes, in_time


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_readings_come_now_and_then_with_the_time_left() -> None:
    clock, seen = Clock(), list[Progress]()
    meter = Meter(seen.append, clock)
    meter.expect(rows=1000, source_bytes=5_000_000)
    for step in range(1, 101):
        clock.now = step / 10
        meter.reached(step / 100)
    assert 30 < len(seen) <= 50
    last = seen[-1]
    assert last.phase == "reading"
    assert last.seconds_left == pytest.approx(10 - last.seconds)
    meter.begin("writing")
    clock.now = 20
    meter.wrote(250, 4000)
    last = seen[-1]
    assert (last.phase, last.rows, last.total_rows, last.bytes) == ("writing", 250, 1000, 4000)
    assert last.fraction == 0.25
    assert last.seconds_left == pytest.approx(30)
    meter.begin("done")
    assert seen[-1].phase == "done"


def test_without_a_watcher_nothing_happens() -> None:
    meter = Meter(None)
    meter.reached(0.5)
    meter.wrote(1, 1)
    meter.begin("done")


def test_a_line_says_rows_bytes_and_time_left() -> None:
    told = Progress("writing", 0.25, 2500, 10_000, 40_000, 10**9, 3.0, 9.0).line()
    assert told == "writing,  25%, 2,500 of 10,000 steps, 40.0 kB, 3.0 s, about 9.0 s left"
    assert "of 1.0 GB" in Progress("reading", 0.5, 0, None, 0, 10**9, 3.0, 3.0).line()
    assert Progress("reading", None, 0, None, 0, None, 3.0, None).line() == "reading, 3.0 s"


def test_the_terminal_line_is_written_over_and_wiped_away() -> None:
    stream = io.StringIO()
    line = Line(stream)
    line(Progress("reading", 0.5, 0, None, 0, 10**9, 3.0, 3.0))
    line(Progress("writing", None, 1, None, 4, None, 4.0, None))
    line(Progress("done", None, 1, None, 4, None, 5.0, None))
    shown = stream.getvalue().split("\r")
    assert shown[1].startswith("lowtide.ingest: reading")
    assert shown[2].startswith("lowtide.ingest: writing")
    assert len(shown[2]) == len(shown[1])
    assert shown[3].strip() == ""
    assert "\n" not in stream.getvalue()


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2_340_000, "2.3 MB"), (5 * 10**15, "5,000.0 TB")],
)
def test_sizes_are_readable(size: int, told: str) -> None:
    assert in_bytes(size) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.24, "0.2 s"), (42.4, "42 s"), (59.7, "1 min 00 s"), (125, "2 min 05 s"), (7384, "2 h 03 min")],
)
def test_times_are_readable(seconds: float, told: str) -> None:
    assert in_time(seconds) == told
