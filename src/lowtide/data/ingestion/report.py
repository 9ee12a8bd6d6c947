"""What came of an ingest: for the store's notes, and as lines to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.data.ingestion.dtypes import HalfReport
from lowtide.data.ingestion.tally import Tally


@dataclass(frozen=True)
class IngestReport:
    """The outcome."""

    sequences: int
    steps: int
    tally: Tally
    halves: Sequence[HalfReport]
    """Of every field of float32: what float16 would do to it."""
    missing: Mapping[str, object]
    """By column: what became of missing values, where that was no error."""
    means: Mapping[str, float]
    """By column: what missing values were filled with."""
    horizon: int = 0
    """How many steps ahead the targets lie."""
    sources: Sequence[str] = ()

    def notes(self) -> dict[str, object]:
        """Plain values for the manifest."""
        made: dict[str, object] = {
            "sources": list(self.sources),
            "sequences": self.sequences,
            "steps": self.steps,
            **self.tally.notes(),
        }
        if self.missing:
            made["missing"] = dict(self.missing)
        if self.horizon:
            made["horizon"] = self.horizon
        if self.means:
            made["means"] = dict(self.means)
        if self.halves:
            made["float16"] = {
                half.field: {
                    "saves": half.bytes,
                    "largest_error": half.error,
                    "at": half.at,
                    "fits": not half.overflows,
                }
                for half in self.halves
            }
        return made

    def lines(self) -> list[str]:
        """To be read."""
        return [
            f"{self.sequences:,} sequences, {self.steps:,} steps",
            *self.tally.lines(),
            *(half.line() for half in self.halves if half.bytes),
        ]
