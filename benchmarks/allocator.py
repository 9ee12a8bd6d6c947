"""What does settling the allocator bring stock training: time, peak memory, and how far both scatter?

    python -m benchmarks.allocator                       everything, about ten minutes
    python -m benchmarks.allocator --only GRU --processes 3

Each setting of malloc runs in several processes of its own, in turns: a short step to warm up, then six steps of stock
torch. Time is that of the best step; memory is how far the six raise VmHWM - RssFile. The settings: malloc as it is;
its mmap and trim thresholds raised, so that it keeps what was freed; `settle_allocator`, and the same with a higher
threshold. Linux with glibc only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, figures_to_json, render_figures
from benchmarks.layers import write
from benchmarks.report import MEGABYTE, Machine, render_machine
from benchmarks.targets import GRU_512, LSTM_256, RAISED_THRESHOLDS
from benchmarks.task import ROOT, ask_child
from benchmarks.work import Work
from lowtide.memory import growth, settle_allocator
from lowtide.memory.allocator import MMAP_THRESHOLD

RESULTS = ROOT / "benchmarks" / "results" / "allocator.json"
MODULE = "benchmarks.allocator"
WORKS = (replace(LSTM_256, layers=2), GRU_512)
STEPS = 6
WARM_UP_STEPS = 16
"""Time steps of the step that brings threads and lazily loaded code."""
PROCESSES = 5
SPREAD = 1.0
"""Per cent that the peak of a settled process may differ from another one's."""


@dataclass(frozen=True)
class Setting:
    """One way to have malloc behave."""

    name: str
    variables: Mapping[str, str]
    """Environment variables of the children."""
    mmap_threshold: int | None = None
    """What the children call `settle_allocator` with; None: they do not."""


DEFAULT = Setting("malloc as it is", {})
RAISED = Setting("raised thresholds", RAISED_THRESHOLDS)
SETTLED = Setting("settled", {}, mmap_threshold=MMAP_THRESHOLD)
HIGHER = Setting("settled at 8 MiB", {}, mmap_threshold=8 << 20)
"""Above what a layer takes for a single time step: such blocks stay in the heap and pay no page faults."""
SETTINGS = (DEFAULT, RAISED, SETTLED, HIGHER)


@dataclass(frozen=True)
class Sample:
    """What several processes measured under one setting."""

    seconds: tuple[float, ...]
    growth: tuple[int, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; be a measuring child, or the parent that asks children and shows what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="works with this in their title, in any case")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each setting")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(answer(json.loads(chosen.child))))
        return 0
    works = [work for work in WORKS if chosen.only.lower() in work.title.lower()]
    measure(works, processes=chosen.processes, path=chosen.json)
    return 0


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer
    """Be a measuring child. One that settles does so before torch is loaded, as a user's script would."""
    if request["act"] == "machine":
        from benchmarks.machine import describe_machine  # noqa: PLC0415 - brings torch

        return asdict(describe_machine())
    if request["mmap_threshold"] is not None:
        report = settle_allocator(mmap_threshold=request["mmap_threshold"])
        assert report.mmap_threshold is not None, f"malloc could not be settled: {report.notes}"
    return train(Work(**request["work"]))


def train(work: Work) -> dict[str, float]:
    """Seconds of the best step of stock torch, and how far all steps raise this process's memory."""
    from torch.nn.functional import mse_loss  # noqa: PLC0415 - loaded once malloc is settled

    from benchmarks.contest import make_batch, make_stock, run_layer  # noqa: PLC0415

    layer = make_stock(work)
    short = make_batch(replace(work, steps=WARM_UP_STEPS), inputs_require_grad=False)
    batch = make_batch(work, inputs_require_grad=False)

    def step(data: Any) -> float:  # noqa: ANN401 - a batch, whose type is not loaded above
        start = time.perf_counter()
        layer.zero_grad()
        mse_loss(run_layer(layer, data.inputs), data.target).backward()  # type: ignore[no-untyped-call] # torch's
        return time.perf_counter() - start

    step(short)
    with growth() as peak:
        seconds = [step(batch) for _ in range(STEPS)]
    return {"seconds": min(seconds), "growth": peak.bytes}


def measure(works: Sequence[Work], *, processes: int, path: Path) -> None:
    """Measure some works, show all figures of each when they are there, and keep them at `path`."""
    machine = Machine(**ask({"act": "machine"}, DEFAULT))
    print(render_machine(machine), flush=True)
    figures: list[Figure] = []
    for work in works:
        print(work.title, file=sys.stderr, flush=True)
        found = show(sample(work, processes=processes))
        figures += [replace(one, question=f"{work.title}: {one.question}") for one in found]
        print(f"\n{work.title}, {processes} processes a setting\n\n{render_figures(found)}", flush=True)
        write(path, figures_to_json(machine, figures))


def sample(work: Work, *, processes: int, settings: Sequence[Setting] = SETTINGS) -> dict[str, Sample]:
    """Measure settings in turns, so that a machine that slows down slows all of them."""
    found: dict[str, list[dict[str, Any]]] = {setting.name: [] for setting in settings}
    for _ in range(processes):
        for setting in settings:
            request = {"act": "train", "work": asdict(work), "mmap_threshold": setting.mmap_threshold}
            found[setting.name].append(ask(request, setting))
    return {
        name: Sample(tuple(one["seconds"] for one in values), tuple(one["growth"] for one in values))
        for name, values in found.items()
    }


def ask(request: dict[str, Any], setting: Setting) -> Any:  # noqa: ANN401 - each request has its own answer
    """Have a child answer under a setting."""
    return ask_child(json.dumps(request), setting.variables, module=MODULE)


def show(samples: Mapping[str, Sample]) -> list[Figure]:
    """Best time and highest peak of each setting with their spread, and what settling must reach beside the default."""
    figures = []
    for name, one in samples.items():
        times = " ".join(f"{1000 * value:.0f}" for value in one.seconds)
        peaks = " ".join(f"{value / MEGABYTE:.0f}" for value in one.growth)
        figures += [
            Figure(f"{name}: best step", 1000 * min(one.seconds), "ms", detail=times),
            Figure(f"{name}: spread of time", 100 * spread(one.seconds), "%"),
            Figure(f"{name}: growth of the peak", max(one.growth) / MEGABYTE, "MB", detail=peaks),
            Figure(
                f"{name}: spread of the peak", 100 * spread(one.growth), "%", SPREAD if name == SETTLED.name else None
            ),
        ]
    default, settled = samples[DEFAULT.name], samples[SETTLED.name]
    return [
        *figures,
        Figure("settled / as it is: best step", min(settled.seconds) / min(default.seconds), "", 1.0),
        Figure("settled / as it is: growth of the peak", max(settled.growth) / max(default.growth), ""),
    ]


def spread(values: Sequence[float]) -> float:
    """From the lowest to the highest, as a share of the lowest."""
    return (max(values) - min(values)) / min(values)


if __name__ == "__main__":
    sys.exit(main())
