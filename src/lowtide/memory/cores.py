"""How many cores this process may keep busy: more threads than that only wait for each other.

Threads of a recurrent layer work in lockstep and wait by spinning. With more of them than cores, or two teams on the
same cores, one waits for a thread that is not running, and training slows down many times.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from lowtide.memory.groups import Group, read_groups
from lowtide.memory.status import PROC


@dataclass(frozen=True)
class Cores:
    """How many cores may be used."""

    count: int
    """Threads that can run at the same time."""
    source: str
    """What keeps the count from being higher, in words."""
    quota: float | None
    """Cores' worth of time that the control groups allow; None where they set no limit."""

    def __str__(self) -> str:
        return f"{self.count}: {self.source}"


def cores(*, proc: Path = PROC) -> Cores:
    """Find out how many cores this process may keep busy.

    The smaller of two: the cores that its affinity names (taskset, cpuset groups), and the time that its control
    groups give it (cpu.max, cpu.cfs_quota_us), rounded up to whole cores.

    Args:
        proc: Where the proc file system is.
    """
    allowed = _allowed()
    source = f"{allowed} of {os.cpu_count()} cores allowed by the affinity"
    quota, group = min(_quotas(proc), key=lambda found: found[0], default=(None, None))
    if quota is None or math.ceil(quota) >= allowed:
        return Cores(allowed, source, quota)
    return Cores(max(1, math.ceil(quota)), f"the quota of {group} is {quota:g} cores' time", quota)


def _allowed() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS, Windows


def _quotas(proc: Path) -> list[tuple[float, Group]]:
    found = []
    for group in read_groups("cpu", proc=proc):
        quota = _quota(group)
        if quota is not None:
            found.append((quota, group))
    return found


def _quota(group: Group) -> float | None:
    if group.version == 1:
        time, period = group.number("cpu.cfs_quota_us"), group.number("cpu.cfs_period_us")
        return time / period if time is not None and period else None
    time_text, _, period_text = (group.text("cpu.max") or "max").partition(" ")
    return None if time_text == "max" else int(time_text) / int(period_text)
