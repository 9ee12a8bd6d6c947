"""What an ingest did to the data besides taking them over: nothing is dropped or filled without being counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts, by what happened."""

    dropped: Counter[str] = field(default_factory=Counter)
    """What did not come into the store."""
    filled: Counter[str] = field(default_factory=Counter)
    """Missing values that were filled, by column."""
    left_aside: Counter[str] = field(default_factory=Counter)
    """Files that were found and not read, by kind."""

    def notes(self) -> dict[str, dict[str, int]]:
        """Plain values for the manifest; nothing where nothing happened."""
        told = {"dropped": self.dropped, "filled": self.filled, "left_aside": self.left_aside}
        return {what: dict(sorted(counts.items())) for what, counts in told.items() if counts}

    def lines(self) -> list[str]:
        """The same to be read."""
        return [
            f"{verb} {count:,} {what}"
            for verb, counts in (("dropped", self.dropped), ("filled", self.filled), ("left aside", self.left_aside))
            for what, count in sorted(counts.items())
        ]
