"""The part `rivals` of `benchmarks.plan`: what else people do about memory, in the same cgroups. Loads no framework.

A contest is a task and a limit. Each contestant trains it in a process of its own, in a memory cgroup with that limit,
on the same sequences: `plan_rivals_child.py`. What comes of it: so many valid
steps a second, an error, or the kernel killed it. The finders of accelerate and Lightning wait for an exception that
says that memory is out; on a CPU none comes, since the kernel promises more than it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.cgroups import hindrance
from benchmarks.figures import Figure
from benchmarks.plan_asking import Show, asked_within, go_on, recall
from benchmarks.report import MEGABYTE

PLAN = "plan"
CONTESTANTS = {
    PLAN: "the plan",
    "stock": "stock torch",
    "accelerate": "accelerate's find_executable_batch_size",
    "lightning": "Lightning's batch-size finder",
}
EPOCHS = 2
"""That are trained; the last is timed."""


@dataclass(frozen=True)
class Contest:
    """A task inside a limit."""

    name: str
    limit: int
    case: Mapping[str, Any]
    """Of a `plan_case.Case`, but for what is the same in all contests."""


CONTESTS = (
    Contest(
        "long sequences",
        1 << 30,
        {"layers": 2, "hidden": 128, "inputs": 32, "head": "per step", "classes": 8}
        | {"lengths": "constant", "typical": 4000, "batch_size": 32},
    ),
    Contest(
        "log-normal lengths",
        1 << 30,
        {"layers": 2, "hidden": 128, "inputs": 32, "head": "pooled", "classes": 10}
        | {"lengths": "log-normal", "typical": 500, "batch_size": 64},
    ),
    Contest(
        "fits for all",
        3 << 30,
        {"layers": 1, "hidden": 128, "inputs": 32, "head": "pooled", "classes": 10}
        | {"lengths": "constant", "typical": 1000, "batch_size": 64},
    ),
)


def measure_rivals(kept: Path, *, show: Show) -> list[Figure]:
    """Run the contestants that were not run before, and show all."""
    reason = hindrance()
    show(f"without a kernel limit, where nothing is killed: {reason}" if reason else "each in a memory cgroup")
    names = {
        f"{contest.name}: {contestant}": (contest, contestant) for contest in CONTESTS for contestant in CONTESTANTS
    }

    def measure(name: str) -> dict[str, Any]:
        contest, contestant = names[name]
        request = {"act": "rival", "contest": asdict(contest), "contestant": contestant}
        return {"name": name} | asked_within(request, contest.limit)

    go_on(list(names), kept, measure, lambda found: show(f"{found['name']}: {outcome(found)}"))
    known = recall(kept)
    return judge({contest.name: {who: known[f"{contest.name}: {who}"] for who in CONTESTANTS} for contest in CONTESTS})


def outcome(found: Mapping[str, Any]) -> str:
    """What came of a contestant, in words."""
    if "rate" in found:
        return (
            f"{found['rate']:,.0f} valid steps/s at batches of {found['batch_size']}, ready after "
            f"{found['ready_seconds']:.1f} s, peak {found['peak'] / MEGABYTE:.0f} MB"
        )
    if "error" in found:
        return f"error: {found['error']}"
    return "killed" if found["killed"] else f"FAILED: {found['words'][-300:]}"


def judge(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Figure]:
    """Valid steps a second of each contestant of each contest, and how often each was killed or gave up."""
    limits = {contest.name: contest.limit for contest in CONTESTS}
    figures = []
    for contest, contestants in found.items():
        within = f"{contest} within {limits[contest] >> 20} MiB"
        figures += [
            Figure(f"{within}: {CONTESTANTS[who]}", one.get("rate", 0.0), "steps/s", detail=outcome(one))
            for who, one in contestants.items()
        ]
        figures += _beside_the_fastest(within, contestants)
    for who, name in CONTESTANTS.items():
        lost = [contest for contest, contestants in found.items() if "rate" not in contestants[who]]
        figures.append(Figure(f"{name}: did not train", len(lost), "", _bound(who), detail=", ".join(lost)))
    return figures


def _beside_the_fastest(within: str, contestants: Mapping[str, Mapping[str, Any]]) -> Sequence[Figure]:
    rates = {who: float(one["rate"]) for who, one in contestants.items() if "rate" in one and who != PLAN}
    if not rates or "rate" not in contestants[PLAN]:
        return []
    fastest = max(rates, key=lambda who: rates[who])
    share = float(contestants[PLAN]["rate"]) / rates[fastest]
    return [Figure(f"{within}: the plan / the fastest of the others", share, "", detail=CONTESTANTS[fastest])]


def _bound(who: str) -> float | None:
    return 0 if who == PLAN else None
