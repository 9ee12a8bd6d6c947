"""How much faster and leaner are the layers of `lowtide.nn` than torch's own, which they replace?

    python -m benchmarks.layers                          everything, about half an hour
    python -m benchmarks.layers --only H64 --quick       the rows with H64 in their title, two steps each
    python -m benchmarks.layers --tables time,memory     two of the tables

Each row is measured in a process of its own: one forward and one backward pass from a gradient made before, stock and
lean layers in turns, the best of five turns. A turn is two steps, the second of which counts. (Of torch's packed
LSTM, which takes a minute, the best of two single steps.) Memory is measured in a process for each contestant: how
far one forward and backward pass of a mean square loss, with inputs and target made before, raises VmHWM - RssFile.
Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Machine, Report, Table, render_machine, render_table, to_json
from benchmarks.tables import measure_table
from benchmarks.targets import TRIALS
from benchmarks.task import ROOT, ask_child

RESULTS = ROOT / "benchmarks" / "results" / "layers.json"
REPEATS = 5
QUICK_REPEATS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; be a measuring child, or the parent that asks children and shows what they say."""
    chosen = _parser().parse_args(arguments)
    if chosen.child:
        from benchmarks import child  # noqa: PLC0415 - brings torch, which the parent shall not hold

        print(json.dumps(child.answer(chosen.child)))
        return 0
    measure(chosen.tables, only=chosen.only, repeats=QUICK_REPEATS if chosen.quick else REPEATS, path=chosen.json)
    return 0


def measure(names: Sequence[str], *, only: str, repeats: int, path: Path) -> None:
    """Measure the tables named, print each when it is there, and keep what there is at `path`."""
    machine = Machine(**ask_child("machine", {}))
    print(render_machine(machine), flush=True)
    tables: list[Table] = []
    for name in names:
        table = measure_table(TRIALS[name], only=only, repeats=repeats)
        if table.rows:
            tables.append(table)
            print(f"\n{render_table(table)}", flush=True)
            write(path, to_json(Report(machine, tuple(tables))))


def write(path: Path, text: str) -> None:
    """Put a file into its place whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tables", type=_table_names, default=list(TRIALS), metavar="NAMES", help=f"some of {','.join(TRIALS)}"
    )
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="rows with this in their title, in any case")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEATS} steps instead of {REPEATS}")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--child", metavar="REQUEST", help="be a measuring child (used by the script itself)")
    return parser


def _table_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in TRIALS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no table is called {', '.join(unknown)}; there are {', '.join(TRIALS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
