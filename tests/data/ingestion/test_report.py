"""What is reported of an ingest: as notes of the store, and as lines."""

from __future__ import annotations

from lowtide.data.ingestion.dtypes import HalfReport
from lowtide.data.ingestion.report import IngestReport
from lowtide.data.ingestion.tally import Tally


def report(tally: Tally, **told: float) -> IngestReport:
    halves = (HalfReport("x", bytes=2_000_000, error=0.5, at=1000.0), HalfReport("empty"))
    return IngestReport(
        sequences=3, steps=1200, tally=tally, halves=halves, missing={"x": "mean"}, means=told, sources=("a.csv",)
    )


def test_the_notes_say_all_that_was_done() -> None:
    tally = Tally()
    tally.dropped["steps without 'x'"] += 2
    notes = report(tally, x=1.5).notes()
    assert notes["dropped"] == {"steps without 'x'": 2}
    assert (notes["sequences"], notes["steps"], notes["sources"]) == (3, 1200, ["a.csv"])
    assert (notes["means"], notes["missing"]) == ({"x": 1.5}, {"x": "mean"})


def test_the_notes_say_nothing_of_what_was_not_done() -> None:
    notes = report(Tally()).notes()
    assert not {"dropped", "filled", "left_aside", "means", "horizon"} & set(notes)


def test_the_lines_are_to_be_read() -> None:
    tally = Tally()
    tally.filled["missing values of 'x' (mean)"] += 1234
    lines = report(tally).lines()
    assert lines[:2] == ["3 sequences, 1,200 steps", "filled 1,234 missing values of 'x' (mean)"]
    assert lines[2].startswith("'x' as float16 would save 2.0 MB; largest error 0.5")
    assert len(lines) == 3
