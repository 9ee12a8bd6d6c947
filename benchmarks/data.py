"""Does data of any size become batches in bounded memory, fast, with little padding, and resumably?

    python -m benchmarks.data                            everything but cgroup, about ten minutes and 10 GB of disk
    python -m benchmarks.data --quick --only ingest,open  a tenth of the data, some of the parts
    python -m benchmarks.data --only cgroup --csv 20     20 GB of CSV in a memory cgroup of 1 GiB; as root

Parts: ingest (shuffled rows of Parquet and CSV, beside DuckDB sorting them into a Parquet file with the same limit on
memory and the same threads), open (ten million sequences), padding (log-normal lengths, beside a full sort and random
batches), loading (beside a torch DataLoader over Hugging Face `datasets` that holds the same sequences), resume (random
places to stop and go on at), and cgroup. All data are made here, in a temporary folder (TMPDIR says where). Each
contestant runs in a process of its own, in turns; best against best, and of memory the worst. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.data_cgroup import cgroup
from benchmarks.data_parts import MODULE, PARTS, QUICK, Sizes
from benchmarks.figures import Figure, figures_to_json, render_figures
from benchmarks.layers import write
from benchmarks.report import Machine, render_machine
from benchmarks.task import ROOT, ask_child

RESULTS = ROOT / "benchmarks" / "results" / "data.json"
GROUPED = "cgroup"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; be a measuring child, or the parent that asks children and shows what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=_part_names, default=list(PARTS), metavar="PARTS", help=f"some of {','.join((*PARTS, GROUPED))}"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, each contestant once")
    parser.add_argument("--csv", type=float, default=20.0, metavar="GB", help="size of the CSV of cgroup")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(answer(json.loads(chosen.child))))
        return 0
    measure(chosen.only, QUICK if chosen.quick else Sizes(), csv_bytes=int(1e9 * chosen.csv), path=chosen.json)
    return 0


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer
    """Be a measuring child."""
    if request["act"] == "machine":
        from benchmarks import machine  # noqa: PLC0415 - brings torch

        return asdict(machine.describe_machine())
    from benchmarks import data_child  # noqa: PLC0415 - brings lowtide

    return data_child.answer(request)


def measure(names: Sequence[str], sizes: Sizes, *, csv_bytes: int, path: Path) -> None:
    """Measure the parts named, show the figures of each when they are there, and keep all of them at `path`."""
    machine = Machine(**ask_child(json.dumps({"act": "machine"}), {}, module=MODULE))
    print(render_machine(machine), flush=True)
    figures: list[Figure] = []
    for name in names:
        print(name, file=sys.stderr, flush=True)
        found = cgroup(csv_bytes) if name == GROUPED else PARTS[name](sizes)
        figures += found
        print(f"\n{name}\n\n{render_figures(found)}", flush=True)
        write(path, figures_to_json(machine, figures))


def _part_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in (*PARTS, GROUPED)]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no part is called {', '.join(unknown)}; there are {', '.join((*PARTS, GROUPED))}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
