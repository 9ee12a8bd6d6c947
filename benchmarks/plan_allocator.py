"""The part `allocator` of `benchmarks.plan`: stock training as malloc is, and settled. Loads no framework.

A plan's figures hold because probe, proof and run share settings of malloc. What these bring stock torch: time, peak,
and how far both scatter; `benchmarks.allocator` asks the same of more settings.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.allocator import DEFAULT, PROCESSES, SETTLED, WORKS, Sample, sample
from benchmarks.allocator import show as figures_of
from benchmarks.figures import Figure
from benchmarks.plan_asking import Show, go_on, recall
from benchmarks.report import MEGABYTE


def measure_allocator(kept: Path, *, show: Show) -> list[Figure]:
    """Measure the works that were not measured before, and judge all."""
    works = {work.title: work for work in WORKS}

    def measure(title: str) -> dict[str, Any]:
        found = sample(works[title], processes=PROCESSES, settings=(DEFAULT, SETTLED))
        return {"title": title, "samples": {name: asdict(one) for name, one in found.items()}}

    go_on(list(works), kept, measure, lambda found: show(told(found)))
    return [figure for title in works for figure in judge(recall(kept)[title])]


def told(found: dict[str, Any]) -> str:
    """One work in a line."""
    parts = [
        f"{name}: {' '.join(f'{one:.2f}' for one in values['seconds'])} s, "
        f"{' '.join(f'{one / MEGABYTE:.0f}' for one in values['growth'])} MB"
        for name, values in found["samples"].items()
    ]
    return f"{found['title']}: {'; '.join(parts)}"


def judge(found: dict[str, Any]) -> list[Figure]:
    """Time and peak of one work under each setting, their spread, and what settling must reach."""
    samples = {
        name: Sample(tuple(values["seconds"]), tuple(values["growth"])) for name, values in found["samples"].items()
    }
    return [replace(one, question=f"{found['title']}: {one.question}") for one in figures_of(samples)]
