"""Does a budget become a plan that holds: never killed, close to what is measured, fast, and made in seconds?

    python -m benchmarks.plan                     everything, beside nothing else; hours
    python -m benchmarks.plan --only cases --cases 10     some of it
    python -m benchmarks.plan --only grid --only rivals   parts, about half an hour each
    python -m benchmarks.plan --fresh             forget what an interrupted run has found

Parts: cases (drawn tasks of many kinds, each planned and trained in a process of its own, in a memory cgroup whose
limit is the budget: as root with version 1 of cgroups; elsewhere without that limit, which the table says), grid (what
the plan chose beside the best of all choices, each of them timed), rivals (stock torch and the batch-size finders of
accelerate and Lightning in the same cgroups), allocator (stock training as malloc is, and settled). What is measured is
kept case by case, so a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cgroups import hindrance, kills, memory_group
from benchmarks.figures import Figure, figures_to_json, render_figures
from benchmarks.layers import write
from benchmarks.plan_allocator import measure_allocator
from benchmarks.plan_asking import MODULE, asked
from benchmarks.plan_grid import CASES as GRIDS
from benchmarks.plan_grid import measure_grid
from benchmarks.plan_rivals import measure_rivals
from benchmarks.report import MEGABYTE, Machine, render_machine
from benchmarks.task import ROOT, ask_child

RESULTS = ROOT / "benchmarks" / "results" / "plan.json"
PARTS = ("cases", "grid", "rivals", "allocator")
CASES = 60
_GROWTH_TOLD = 200e6
"""Growth over the imported process from which on its own ratio is asked for."""
_SMALL_PARAMETERS = 5_000_000
_SMALL_STEPS = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; be a measuring child, or the parent that asks children and shows what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help="how many are drawn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first")
    parser.add_argument("--grids", type=int, default=GRIDS, metavar="N", help="how many cases have all choices timed")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        print(json.dumps(answer(json.loads(chosen.child))))
        return 0
    measures: dict[str, Callable[[Path], list[Figure]]] = {
        "cases": lambda kept: judge(measure_cases(range(chosen.first, chosen.first + chosen.cases), kept, show=_show)),
        "grid": lambda kept: measure_grid(chosen.grids, kept, show=_show),
        "rivals": lambda kept: measure_rivals(kept, show=_show),
        "allocator": lambda kept: measure_allocator(kept, show=_show),
    }
    machine = Machine(**ask_child(json.dumps({"act": "machine"}), {}, module=MODULE))
    print(render_machine(machine), flush=True)
    figures: list[Figure] = []
    for part in dict.fromkeys(chosen.only or PARTS):
        kept = chosen.json.with_suffix(f".{part}.json")
        if chosen.fresh:
            kept.unlink(missing_ok=True)
        found = measures[part](kept)
        figures += found
        print(f"\n{part}\n\n{render_figures(found)}\n", flush=True)
        write(chosen.json, figures_to_json(machine, figures))
    return 0


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer
    """Be a measuring child."""
    if request["act"] == "machine":
        from benchmarks import machine  # noqa: PLC0415 - brings torch

        return asdict(machine.describe_machine())
    if request["act"] == "grid":
        from benchmarks.plan_grid_child import run_grid  # noqa: PLC0415 - brings lowtide

        return run_grid(request["number"])
    if request["act"] == "rival":
        from benchmarks.plan_rivals_child import run_rival  # noqa: PLC0415 - brings torch

        return run_rival(request["contest"], request["contestant"], request["group"])
    from benchmarks.plan_child import run_case  # noqa: PLC0415 - brings lowtide

    return run_case(request["number"], request["group"])


def measure_cases(numbers: Sequence[int], kept: Path, *, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Run the cases that were not run before."""
    known: dict[str, dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    reason = hindrance()
    show(f"without a kernel limit: {reason}" if reason else "each in a memory cgroup whose limit is its budget")
    for number in numbers:
        if str(number) not in known:
            known[str(number)] = _measure(number, limited=reason is None)
            write(kept, json.dumps(known, indent=1))
        show(told(known[str(number)]))
    return [known[str(number)] for number in numbers]


def told(found: dict[str, Any]) -> str:
    """One case in a line."""
    if "measured" not in found:
        return f"{found['number']}: {'KILLED' if found['killed'] else 'FAILED'} {found['case']} {found['words'][-300:]}"
    ratio, growth = ratios(found)
    return (
        f"{found['number']}: {ratio:.3f} of {found['measured'] / MEGABYTE:.0f} MB (growth {growth:.3f}, before the "
        f"proof {found['before'] / found['measured']:.3f}), budget {found['budget'] / MEGABYTE:.0f} MB, planned in "
        f"{found['planning_seconds']:.1f} s at {found['planning_peak'] / MEGABYTE:.0f} MB: {found['case']}"
    )


def ratios(found: dict[str, Any]) -> tuple[float, float]:
    """Predicted / measured: of all, and of the growth over the imported process."""
    imported = found["imported"]
    growth = (found["predicted"] - imported) / max(1, found["measured"] - imported)
    return found["predicted"] / found["measured"], growth


def judge(cases: Sequence[dict[str, Any]]) -> list[Figure]:
    """What was asked for, over all cases."""
    done = [one for one in cases if "measured" in one]
    killed = [one["number"] for one in cases if one.get("killed")]
    failed = [one["number"] for one in cases if "measured" not in one and not one["killed"]]
    figures = [
        Figure("cases killed", len(killed), "", 0, detail=f"of {len(cases)} {killed or ''}"),
        Figure("cases that failed otherwise", len(failed), "", 0, detail=str(failed or "")),
    ]
    if not done:
        return figures
    total = {one["number"]: ratios(one)[0] for one in done}
    large = {one["number"]: ratios(one)[1] for one in done if one["measured"] - one["imported"] > _GROWTH_TOLD}
    before = [one["before"] / one["measured"] for one in done]
    figures += [
        *_range("predicted / measured", total, 1.00, 1.10),
        Figure("the same before the proof", max(before), "", detail=f"from {min(before):.3f}"),
    ]
    if large:
        figures += _range(f"of the growth, where above {_GROWTH_TOLD / MEGABYTE:.0f} MB", large, 1.00, 1.15)
    wanting = {one["number"]: one["measured"] / one["budget"] for one in done if one["faster_with"] is not None}
    if wanting:
        worst = min(wanting, key=lambda number: wanting[number])
        figures.append(
            Figure(
                "measured / budget where more buys speed",
                wanting[worst],
                "",
                0.8,
                "at least",
                f"case {worst}; {sum(share >= 0.8 for share in wanting.values())} of {len(wanting)} reach it",  # noqa: PLR2004
            )
        )
    beyond = [one["planning_peak"] / one["budget"] for one in done]
    small = [
        one["planning_seconds"]
        for one in done
        if one["parameters"] < _SMALL_PARAMETERS and one["longest"] <= _SMALL_STEPS
    ]
    figures += [
        Figure("planning: its own peak / budget", max(beyond), "", 1.0),
        Figure("planning, slowest", max(one["planning_seconds"] for one in done), "s", 60),
    ]
    if small:
        figures.append(Figure("planning of small models, slowest", max(small), "s", 20, detail=f"{len(small)} cases"))
    return figures


def _range(question: str, values: dict[int, float], least: float, most: float) -> list[Figure]:
    low, high = min(values, key=lambda one: values[one]), max(values, key=lambda one: values[one])
    inside = sum(least <= value <= most for value in values.values())
    return [
        Figure(f"{question}, least", values[low], "", least, "at least", f"case {low}"),
        Figure(
            f"{question}, most", values[high], "", most, "at most", f"case {high}; {inside} of {len(values)} inside"
        ),
    ]


def _measure(number: int, *, limited: bool) -> dict[str, Any]:
    from benchmarks.plan_case import draw_case  # noqa: PLC0415 - brings torch

    case = {"number": number, "case": str(draw_case(number))}
    if not limited:
        return case | _asked(number, None)
    with memory_group() as group:
        found = _asked(number, group)
        return case | found | {"killed": kills(group) > 0 and "measured" not in found}


def _asked(number: int, group: Path | None) -> dict[str, Any]:
    return asked({"act": "case", "number": number, "group": None if group is None else str(group)})


def _show(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
