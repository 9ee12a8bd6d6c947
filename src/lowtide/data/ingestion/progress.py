"""How far an ingest has come: as values for whoever asks for them, or as a line on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

Phase = Literal["reading", "writing", "filling", "fitting", "done"]
Watcher: TypeAlias = "Callable[[Progress], object]"

_SECONDS_BETWEEN = 0.25
_MINUTE = 60
_HOUR = 3600


@dataclass(frozen=True)
class Progress:
    """One reading."""

    phase: Phase
    """Reading and sorting the source; writing the store; filling means; fitting transforms; done."""
    fraction: float | None
    """Of the phase, 0 to 1; None where it cannot be told."""
    rows: int
    """Steps written so far."""
    total_rows: int | None
    """Steps that there are, where that is known."""
    bytes: int
    """Bytes of values written so far."""
    source_bytes: int | None
    """Bytes of the source's files, where there are files."""
    seconds: float
    """Since the beginning."""
    seconds_left: float | None
    """Of the phase, where that can be told."""

    def line(self) -> str:
        """To be read."""
        parts: list[str] = [self.phase]
        if self.fraction is not None:
            parts.append(f"{self.fraction:4.0%}")
        if self.phase == "reading" and self.source_bytes:
            parts.append(f"of {in_bytes(self.source_bytes)}")
        if self.rows:
            total = f" of {self.total_rows:,}" if self.total_rows else ""
            parts.append(f"{self.rows:,}{total} steps, {in_bytes(self.bytes)}")
        parts.append(in_time(self.seconds))
        if self.seconds_left is not None:
            parts.append(f"about {in_time(self.seconds_left)} left")
        return ", ".join(parts)


class Meter:
    """Takes what is done, and tells a watcher now and then."""

    def __init__(
        self, watcher: Watcher | None, clock: Callable[[], float] = time.monotonic, *, every: float = _SECONDS_BETWEEN
    ) -> None:
        """Tell this watcher; None: nobody."""
        self._watcher = watcher
        self._clock = clock
        self._every = every
        self._began = self._phase_began = clock()
        self._told = float("-inf")
        self._phase: Phase = "reading"
        self._fraction: float | None = None
        self._rows = self._bytes = 0
        self._total_rows: int | None = None
        self._source_bytes: int | None = None

    def expect(self, *, rows: int | None = None, source_bytes: int | None = None) -> None:
        """What there is, where that is known."""
        self._total_rows = rows
        self._source_bytes = source_bytes

    def begin(self, phase: Phase) -> None:
        """Another phase begins."""
        if phase != self._phase:
            self._phase, self._fraction, self._phase_began = phase, None, self._clock()
            if phase == "filling":  # everything is written once more
                self._rows = self._bytes = 0
            self._told = float("-inf")
        self._tell()

    def reached(self, fraction: float) -> None:
        """The phase has come so far."""
        self._fraction = min(1.0, max(0.0, fraction))
        self._tell()

    def wrote(self, rows: int, size: int) -> None:
        """Steps were written."""
        self._rows += rows
        self._bytes += size
        if self._total_rows:
            self._fraction = min(1.0, self._rows / self._total_rows)
        self._tell()

    def _tell(self) -> None:
        now = self._clock()
        if self._watcher is None or (now - self._told < self._every and self._phase != "done"):
            return
        self._told = now
        spent, fraction = now - self._phase_began, self._fraction
        left = spent * (1 - fraction) / fraction if fraction else None
        self._watcher(
            Progress(
                self._phase,
                fraction,
                self._rows,
                self._total_rows,
                self._bytes,
                self._source_bytes,
                now - self._began,
                left,
            )
        )


class Line:
    """One line of a terminal, written over again and again."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to this stream; None: standard error."""
        self._stream = sys.stderr if stream is None else stream
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Show a reading; the last one is wiped away, what follows it says more."""
        text = "" if progress.phase == "done" else f"lowtide.ingest: {progress.line()}"
        self._stream.write(f"\r{text.ljust(self._width)}" + ("\r" if not text else ""))
        self._stream.flush()
        self._width = len(text)


def in_bytes(size: int) -> str:
    """A size to be read."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    place = 0
    while value >= 1000 and place < len(units) - 1:  # noqa: PLR2004 - of the decimal units
        value, place = value / 1000, place + 1
    return f"{value:,.{0 if place == 0 else 1}f} {units[place]}"


def in_time(seconds: float) -> str:
    """A time to be read."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"  # noqa: PLR2004 - digits that mean something
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
