"""The part `grid` of `benchmarks.plan`: the plan's choices beside the best of all choices that fit. Loads no framework.

Every choice is really run and timed, on a few batches of the epoch: `plan_grid_child.py`. Cases are drawn as everywhere
here, and those are taken whose grid takes a minute or two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure
from benchmarks.plan_asking import Show, asked, go_on, recall

if TYPE_CHECKING:
    from benchmarks.plan_case import Case

CASES = 10
_BOUND = 1.1
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_MEAN_WORK = 1.5e10
"""Floating-point operations of a batch of middling length."""
_MOST_WORK = 5e10
"""Of the largest batch."""
_LONGEST = 8000
"""Steps: a choice of short chunks runs very many of them."""
_MOST_GRAPH = 1.0e9
"""Bytes of the largest batch's graph: choices that do not fit into the budget are run, too."""


def measure_grid(cases: int, kept: Path, *, show: Show) -> list[Figure]:
    """Time the grids of so many cases that were not timed before, and judge all."""
    from benchmarks.plan_case import draw_case  # noqa: PLC0415 - brings torch

    numbers = list(islice(moderate_numbers(draw_case), cases))
    names = [str(number) for number in numbers]
    go_on(names, kept, _measure, lambda found: show(told(found)))
    known = recall(kept)
    return judge([known[name] for name in names])


def moderate_numbers(draw: Any) -> Iterator[int]:  # noqa: ANN401 - from a number to a case; its type brings torch
    """The numbers of cases whose grid takes a minute or two, ascending."""
    return (number for number in count() if is_moderate(draw(number)))


def is_moderate(case: Case) -> bool:
    """Whether a case's grid takes a minute or two: its batches take fractions of a second."""
    lengths = sorted(case.sequence_lengths().tolist())
    longest = [max(lengths[start : start + case.batch_size]) for start in range(0, len(lengths), case.batch_size)]
    gates = _GATES[case.cell]
    recurrent = gates * case.hidden * (case.hidden * (2 * case.layers - 1) + case.inputs)
    head = 0 if case.head == "pooled" else case.hidden * case.classes
    a_step = 6 * case.batch_size * (recurrent + head)
    graph = 4 * case.batch_size * longest[-1] * case.hidden * case.layers * (gates + 2)
    mean = sum(longest) / len(longest)
    work = a_step * mean <= _MEAN_WORK and a_step * longest[-1] <= _MOST_WORK
    quick = case.lean or case.precision == "float32"  # stock layers take many times longer in bfloat16 on a CPU
    return bool(quick and work and longest[-1] <= _LONGEST and graph <= _MOST_GRAPH)


def told(found: dict[str, Any]) -> str:
    """One grid in a line."""
    if "samples" not in found:
        return f"{found['number']}: FAILED {found['words'][-300:]}"
    parts = [
        f"{one['rows']} x {one['steps']}: {one['plan']['how']} {one['plan']['seconds']:.3f} s, best of "
        f"{one['fitting']} fitting of {one['run']} {one['best']['how']} {one['best']['seconds']:.3f} s"
        for one in found["samples"]
    ]
    return f"{found['number']}: {ratio(found):.3f} in {found['seconds']:.0f} s: {found['case']}; {'; '.join(parts)}"


def ratio(found: dict[str, Any]) -> float:
    """Time per epoch of the plan / of the best choices."""
    return epoch(found, "plan") / epoch(found, "best")


def epoch(found: dict[str, Any], whose: str) -> float:
    """Seconds of an epoch, of which each sample stands for a part."""
    return sum(float(one["stands_for"]) * float(one[whose]["seconds"]) for one in found["samples"])


def judge(found: Sequence[dict[str, Any]]) -> list[Figure]:
    """What was asked for, over all cases."""
    done = {one["number"]: one for one in found if "samples" in one}
    missing = [one["number"] for one in found if "samples" not in one]
    figures = [Figure("grids that failed", len(missing), "", 0, detail=str(missing or f"of {len(found)}"))]
    for number, one in done.items():
        detail = f"case {number}: {one['case']}; {epoch(one, 'plan'):.2f} s, planned {one['planned_seconds']:.2f} s"
        figures.append(Figure("time per epoch, plan / best of the grid", ratio(one), "", _BOUND, detail=detail))
    over = [
        number for number, one in done.items() if any(each["plan"]["peak"] > one["budget"] for each in one["samples"])
    ]
    if done:
        figures.append(Figure("plans whose peak was above the budget", len(over), "", 0, detail=str(over or "")))
    return figures


def _measure(name: str) -> dict[str, Any]:
    number = int(name)
    return {"number": number} | asked({"act": "grid", "number": number})
