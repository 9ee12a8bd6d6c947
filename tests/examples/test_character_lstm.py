"""The demo: its limit kills the stock layers and spares the lean ones, and its table says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.character_lstm import ALPHABET, Outcome, Run, how_it_died, progress_bar, standard_library_text, table

SCRIPT = Path(__file__).resolve().parent.parent.parent / "examples" / "character_lstm.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the demo's limit and its figures are Linux's")
def test_under_one_limit_stock_dies_and_lean_learns_the_same_as_stock_without_limit() -> None:
    result = subprocess.run([sys.executable, SCRIPT, "--steps", "2"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    rows = {line[:20].strip(): line[20:].split() for line in result.stdout.splitlines() if ", " in line[:20]}
    assert rows["stock, limit 450 MB"][0] == "died"
    assert "allocate" in result.stdout.splitlines()[-1]
    stock, lean = rows["stock, no limit"], rows["lean, limit 450 MB"]
    assert float(lean[-2]) == pytest.approx(float(stock[-2]), abs=1e-3)
    assert float(lean[-1]) == pytest.approx(float(stock[-1]), abs=1e-3)


def test_the_table_puts_figures_side_by_side_and_deaths_below() -> None:
    alive = Outcome(Run("lean", 450), losses=(4.5, 3.25), seconds=(1.0, 2.0, 9.0), peak_bytes=123_400_000)
    dead = Outcome(Run("stock", 450), death="died in step 1 (exit 1): no memory")
    lines = table([dead, alive]).splitlines()
    assert [line.split("  ")[0].strip() for line in lines[2:4]] == ["stock, limit 450 MB", "lean, limit 450 MB"]
    assert lines[3].split()[-6:] == ["2.00", "s", "123", "MB", "4.5000", "3.2500"]
    assert lines[-1] == "stock, limit 450 MB: died in step 1 (exit 1): no memory"


def test_the_bar_grows_with_the_steps() -> None:
    assert progress_bar("lean", 0, 4, None).count("#") == 0
    assert progress_bar("lean", 2, 4, 1.5).count("#") == 15
    assert progress_bar("lean", 4, 4, 1.5).count("#") == 30


def test_a_death_is_told_by_its_last_words_or_its_signal() -> None:
    assert how_it_died(1, "Traceback\n  ...\nMemoryError: x\n", 2) == "died in step 3 (exit 1): MemoryError: x"
    assert how_it_died(-9, "", 0) == "died in step 1 (signal 9): without a word"


def test_the_text_is_numbered_within_the_alphabet() -> None:
    text = standard_library_text()
    assert len(text) > 1_000_000
    assert int(text.max()) < len(ALPHABET)
    readable = bytes(ALPHABET[number] for number in text.tolist()[:200_000]).decode()
    assert "import" in readable
