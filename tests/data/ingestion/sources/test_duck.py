"""DuckDB's errors are said in words that help, whatever it says itself; memory and disk among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.data.ingestion.progress import Meter, Progress
from lowtide.data.ingestion.sources.column import column_type
from lowtide.data.ingestion.sources.duck import Duck, explained, name, select, text
from lowtide.errors import LowtideError

FULL = 'IO Error: Could not write file "/x/duckdb_temp_storage.tmp": No space left on device'
MEMORY = "Out of Memory Error: could not allocate block of size 30.5 MiB (223.1 MiB/238.4 MiB used)"
QUOTA = "Out of Memory Error: failed to offload data block: max_temp_directory_size reached"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (FULL, ["disk is full", "free some disk"]),
        (QUOTA, ["disk is full"]),
        (MEMORY, ["256 MiB", 'memory_limit="512MiB"']),
        ("Some Odd Error: something\nmore", ["something"]),
        ("", ["no reason given"]),
    ],
)
def test_errors_say_what_to_do(message: str, told: list[str]) -> None:
    error = explained(message, {}, 256 << 20)
    assert all(part in str(error) for part in told), str(error)
    assert "Error:" not in error.what


def test_files_that_were_copied_are_called_by_their_own_names() -> None:
    error = explained('x "c"\n  file = /tmp/utf8-0.csv\n', {"/tmp/utf8-0.csv": "mine.csv"}, 0)  # noqa: S108 - a name
    assert error.what.startswith("mine.csv")


def test_too_little_memory_is_an_error_that_names_the_limit(tmp_path: Path) -> None:
    with Duck(16 << 20) as duck:
        duck.spill_to(tmp_path / "spill")
        query = select({"x": "list(range)"}, "range(10000000)")
        with pytest.raises(LowtideError, match="16 MiB"):
            duck.rows(query)


def test_results_are_streamed_and_questions_answered_meanwhile() -> None:
    with Duck(64 << 20) as duck:
        batches = duck.stream("SELECT range AS x FROM range(300000)", 1000, in_order=True, meter=Meter(None))
        first = next(batches)
        assert first.column("x").to_pylist()[:3] == [0, 1, 2]
        assert duck.rows("SELECT 5") == [(5,)]
        rest = [row for batch in batches for row in batch.column("x").to_pylist()]
        assert rest == list(range(first.num_rows, 300_000))


def test_a_stream_that_is_given_up_leaves_the_connection_usable() -> None:
    with Duck(64 << 20) as duck:
        for _ in range(3):
            batches = duck.stream(
                "SELECT range AS x FROM range(300000) ORDER BY -x", 10, in_order=False, meter=Meter(None)
            )
            next(batches)
            batches.close()  # type: ignore[attr-defined]  # it is a generator
        assert duck.rows("SELECT 5") == [(5,)]


def test_a_long_query_tells_how_far_it_has_come(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with Duck(256 << 20) as duck:
        duck.spill_to(tmp_path / "spill")
        query = "SELECT hash(range) AS x FROM range(10000000) ORDER BY x"
        for _ in duck.stream(query, 1 << 17, in_order=False, meter=Meter(seen.append, every=0)):
            break
    reading = [progress for progress in seen if progress.phase == "reading"]
    assert any(progress.fraction for progress in reading)


def test_an_error_in_mid_stream_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x\n" + "1\n" * 100_000 + "abc\n")
    with Duck(256 << 20) as duck:
        relation = f"read_csv({text(str(path))}, auto_detect=false, header=true, columns={{'x': 'BIGINT'}})"
        with pytest.raises(LowtideError, match="line 100002, column 'x': 'abc' is no BIGINT"):
            list(duck.stream(select({"x": name("x")}, relation), 100, in_order=True, meter=Meter(None)))


@pytest.mark.parametrize("odd", ["it's", 'say "x"', "a;b", "--", "\\"])
def test_names_and_texts_are_quoted(odd: str) -> None:
    with Duck(64 << 20) as duck:
        rows = duck.rows(select({odd: text(odd)}, "range(1)"))
        assert rows == [(odd,)]
        assert list(duck.types(f"({select({odd: '1'}, 'range(1)')})")) == [odd]


@pytest.mark.parametrize(
    ("told", "kind", "depth", "width"),
    [
        ("BIGINT", "number", 0, None),
        ("DECIMAL(18,3)", "number", 0, None),
        ("BOOLEAN", "number", 0, None),
        ("VARCHAR", "text", 0, None),
        ("ENUM('a[]', 'b')", "text", 0, None),
        ("TIMESTAMP WITH TIME ZONE", "time", 0, None),
        ("DATE", "time", 0, None),
        ("FLOAT[]", "number", 1, None),
        ("FLOAT[7]", "number", 1, None),
        ("DOUBLE[][]", "number", 2, None),
        ("DOUBLE[3][]", "number", 2, 3),
        ("VARCHAR[]", "text", 1, None),
        ("STRUCT(a INTEGER)", "other", 0, None),
        ("BLOB", "other", 0, None),
    ],
)
def test_types_are_known_by_their_names(told: str, kind: str, depth: int, width: int | None) -> None:
    found = column_type(told)
    assert (found.kind, found.depth, found.width) == (kind, depth, width)
