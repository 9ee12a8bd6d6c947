"""Is training through long sequences, chunk by chunk, exact, small and fast?

    python -m benchmarks.stream                      everything, about half an hour
    python -m benchmarks.stream --only speed,adding  some of the parts

Parts: exact (gradients against float64, 3,000 steps), memory (anonymous memory at 10,000 and 100,000 steps of inputs
on disk, and time per step), million (a million steps of one sequence), speed (against stock training of short
sequences, against torch.utils.checkpoint by chunk, and with all graphs kept), adding (a task that truncation cannot
learn). Each measurement runs in a process of its own, contestants in turns; best against best. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, figures_to_json, render_figures
from benchmarks.layers import write
from benchmarks.report import MEGABYTE, Machine, render_machine
from benchmarks.targets import RAISED_THRESHOLDS
from benchmarks.task import ROOT, ask_child

RESULTS = ROOT / "benchmarks" / "results" / "stream.json"
MODULE = "benchmarks.stream"
LONG, LONGEST, FAST = 10_000, 100_000, 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; be a measuring child, or the parent that asks children and shows what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(answer(json.loads(chosen.child))))
        return 0
    measure(chosen.only.split(","), chosen.json)
    return 0


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer
    """Be a measuring child."""
    from benchmarks import machine, stream_child, stream_exact  # noqa: PLC0415 - bring torch

    if request["act"] == "machine":
        return asdict(machine.describe_machine())
    if request["act"] in {"exact", "adding"}:
        return getattr(stream_exact, request["act"])(**request["options"])
    return stream_child.answer(request)


def measure(parts: Sequence[str], path: Path) -> None:
    """Measure the parts named, show all figures when they are there, and keep them at `path`."""
    machine = Machine(**ask({"act": "machine"}))
    print(render_machine(machine), flush=True)
    figures: list[Figure] = []
    for part in parts:
        print(part, file=sys.stderr, flush=True)
        found = PARTS[part]()
        figures += found
        print(f"\n{part}\n\n{render_figures(found)}", flush=True)
        write(path, figures_to_json(machine, figures))


def ask(request: dict[str, Any], *, raised: bool = False) -> Any:  # noqa: ANN401 - each request has its own answer
    """Have a child answer; with raised malloc thresholds if asked."""
    return ask_child(json.dumps(request), RAISED_THRESHOLDS if raised else {}, module=MODULE)


def ask_stream(act: str, *, raised: bool = False, **work: object) -> Any:  # noqa: ANN401 - each request has its own
    """Have a child do something with a work."""
    return ask({"act": act, "work": work}, raised=raised)


# ---- parts -----------------------------------------------------------------------------------------------------------


def exact() -> list[Figure]:
    """Errors of gradients, against what is allowed at each chunk length."""
    figures = []
    for cell in ("LSTM", "GRU"):
        for dropout in (0.0, 0.3):
            found = ask({"act": "exact", "options": {"cell": cell, "dropout": dropout}})
            what = f"{cell}, T 3000, lengths, dropout {dropout:g}"
            worst = max(found["float32"].values())
            allowed = max(2 * found["whole"], 1e-5)
            detail = f"{len(found['float32'])} chunk lengths; whole sequence {found['whole']:.1e}"
            figures += [
                Figure(f"{what}: float32 gradients, worst error", worst, "", allowed, detail=detail),
                Figure(f"{what}: float64 gradients, worst error", max(found["float64"].values()), "", 1e-12),
            ]
    return figures


def memory() -> list[Figure]:
    """Growth of anonymous memory and time per step, at ten thousand and a hundred thousand steps."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "inputs.npy")
        ask_stream("make data", steps=LONGEST, data=data)
        found = {steps: ask_stream("stream", steps=steps, data=data) for steps in (LONG, LONGEST)}
        again = {steps: ask_stream("stream", steps=steps, data=data) for steps in (LONG, LONGEST)}
    growth = {steps: max(found[steps]["growth"], again[steps]["growth"]) for steps in found}
    rate = {steps: min(found[steps]["seconds"], again[steps]["seconds"]) / steps for steps in found}
    both = f"{growth[LONG] / MEGABYTE:.0f} MB at T {LONG}"
    return [
        Figure(f"LSTM L2 B32 I128 H256: growth at T {LONGEST}", growth[LONGEST] / MEGABYTE, "MB", 200, detail=both),
        Figure(f"growth at T {LONGEST} / at T {LONG}", growth[LONGEST] / growth[LONG], "", 1.2),
        Figure(
            f"time per step at T {LONGEST} / at T {LONG}",
            rate[LONGEST] / rate[LONG],
            "",
            1.1,
            detail=f"{1e6 * rate[LONGEST]:.0f} and {1e6 * rate[LONG]:.0f} us",
        ),
    ]


def million() -> list[Figure]:
    """One sequence of a million steps."""
    found = ask_stream("stream", steps=1_000_000, batch=1, hidden=64, inputs=32, chunk_steps=1024)
    detail = f"{found['seconds']:.0f} s"
    return [Figure("a million steps, B1 H64: growth", found["growth"] / MEGABYTE, "MB", detail=detail)]


def speed() -> list[Figure]:
    """Steps a second against stock training and checkpointing, and what kept graphs bring."""
    best = {name: max(rates) for name, rates in ask_stream("speeds", steps=FAST).items()}
    seconds = {name: min(values) for name, values in ask_stream("kept", steps=4000, raised=True).items()}
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in best.items())
    return [
        Figure(
            f"steps a second at T {FAST} / stock training at T 1000",
            best["stream"] / best["stock"],
            "",
            1.2,
            "at least",
            rates,
        ),
        Figure(
            f"steps a second at T {FAST} / torch.utils.checkpoint by chunk",
            best["stream"] / best["checkpoint"],
            "",
            1.1,
            "at least",
        ),
        Figure(
            "all graphs kept / none kept, T 4000, raised malloc thresholds",
            seconds["none"] / seconds["all"],
            "",
            1.2,
            "at least",
            f"{seconds['all']:.2f} and {seconds['none']:.2f} s",
        ),
    ]


def adding() -> list[Figure]:
    """The adding problem over two thousand steps, exact and truncated."""
    rounds = 800
    found = {
        name: ask({"act": "adding", "options": {"steps": 2000, "window_steps": window, "rounds": rounds}})
        for name, window in (("exact", None), ("truncated", 200))
    }
    what = f"adding problem, T 2000, {rounds} rounds: error"
    return [
        Figure(f"{what}, exact", found["exact"], "", 0.01, detail="always saying 1: 0.167"),
        Figure(f"{what}, window_steps=200", found["truncated"], "", 0.05, "at least"),
    ]


PARTS: dict[str, Callable[[], list[Figure]]] = {
    "exact": exact,
    "memory": memory,
    "million": million,
    "speed": speed,
    "adding": adding,
}


if __name__ == "__main__":
    sys.exit(main())
