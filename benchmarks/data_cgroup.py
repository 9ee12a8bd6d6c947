"""An ingest of much more than memory inside a memory cgroup (version 1), where the kernel kills what exceeds it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.data_parts import ask, temporary
from benchmarks.figures import Figure
from benchmarks.report import MEGABYTE

CONTROLLER = Path("/sys/fs/cgroup/memory")
LIMIT = 1 << 30
_LIMIT_FILE = "memory.limit_in_bytes"


def cgroup(size: int) -> list[Figure]:
    """Whether an ingest of so many bytes of CSV ends well, and what it takes.

    Raises:
        SystemExit: There is no such cgroup to be made here.
    """
    reason = _hindrance()
    if reason is not None:
        raise SystemExit(f"cgroup: cannot be measured here: {reason}")
    with temporary() as folder:
        made = ask("make table", folder=str(folder / "table"), form="csv", size=size)
        with _group() as group:
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


def _hindrance() -> str | None:
    if os.geteuid() != 0:
        return "making a memory cgroup needs root"
    if not (CONTROLLER / _LIMIT_FILE).exists():
        return f"there is no memory controller of version 1 at {CONTROLLER}"
    if not os.access(CONTROLLER, os.W_OK):
        return f"{CONTROLLER} cannot be written"
    return None


def _ingest(folder: Path, group: Path) -> Any:  # noqa: ANN401 - figures as the child tells them, or None
    try:
        return ask("ingest", folder=str(folder / "table"), form="csv", out=str(folder / "store"), group=str(group))
    except subprocess.CalledProcessError:
        events = (group / "memory.oom_control").read_text().split()
        if events[events.index("oom_kill") + 1] == "0":
            raise
        return None


@contextmanager
def _group() -> Iterator[Path]:
    group = CONTROLLER / f"lowtide-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / _LIMIT_FILE).write_text(str(LIMIT), encoding="ascii")
        yield group
    finally:
        group.rmdir()
