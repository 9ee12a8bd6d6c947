"""An ingest of much more than memory inside a memory cgroup (version 1), where the kernel kills what exceeds it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from benchmarks.cgroups import hindrance, kills, memory_group
from benchmarks.data_parts import ask, temporary
from benchmarks.figures import Figure
from benchmarks.report import MEGABYTE

LIMIT = 1 << 30


def cgroup(size: int) -> list[Figure]:
    """Whether an ingest of so many bytes of CSV ends well, and what it takes.

    Raises:
        SystemExit: There is no such cgroup to be made here.
    """
    reason = hindrance()
    if reason is not None:
        raise SystemExit(f"cgroup: cannot be measured here: {reason}")
    with temporary() as folder:
        made = ask("make table", folder=str(folder / "table"), form="csv", size=size)
        with memory_group(LIMIT) as group:
            found = _ingest(folder, group)
            refused = int((group / "memory.failcnt").read_text())
    what = f"{made['bytes'] / 1e9:.1f} GB of CSV in a cgroup of {LIMIT >> 20} MiB"
    if found is None:
        return [Figure(f"{what}: finished", 0, "", 1, "at least", "the kernel killed it")]
    rate = made["bytes"] / found["seconds"] / MEGABYTE
    assert found["steps"] == made["rows"], "rows were lost"
    rows = f"{found['steps'] / 1e6:.0f} million rows, {found['sequences']} sequences, in {found['seconds']:.0f} s"
    return [
        Figure(f"{what}: finished", 1, "", 1, "at least", rows),
        Figure(
            "growth of memory", found["growth"] / MEGABYTE, "MB", 500, detail=f"{refused} times pages were reclaimed"
        ),
        Figure("rate", rate, "MB/s"),
    ]


def _ingest(folder: Path, group: Path) -> Any:  # noqa: ANN401 - figures as the child tells them, or None
    try:
        return ask("ingest", folder=str(folder / "table"), form="csv", out=str(folder / "store"), group=str(group))
    except subprocess.CalledProcessError:
        if not kills(group):
            raise
        return None
