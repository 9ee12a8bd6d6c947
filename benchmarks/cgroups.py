"""Memory cgroups (version 1), where the kernel kills what exceeds its limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROLLER = Path("/sys/fs/cgroup/memory")
_LIMIT_FILE = "memory.limit_in_bytes"
_TASKS_FILE = "tasks"
_PATIENCE_SECONDS = 10.0
"""For children of a process that was killed: they end a little later."""


def hindrance() -> str | None:
    """Why no group can be made here; None where one can."""
    if os.geteuid() != 0:
        return "making a memory cgroup needs root"
    if not (CONTROLLER / _LIMIT_FILE).exists():
        return f"there is no memory controller of version 1 at {CONTROLLER}"
    if not os.access(CONTROLLER, os.W_OK):
        return f"{CONTROLLER} cannot be written"
    return None


@contextmanager
def memory_group(limit: int | None = None) -> Iterator[Path]:
    """A group of its own, with a limit or without one yet."""
    group = CONTROLLER / f"lowtide-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        if limit is not None:
            set_limit(group, limit)
        yield group
    finally:
        given_up = time.monotonic() + _PATIENCE_SECONDS
        while (group / _TASKS_FILE).read_text() and time.monotonic() < given_up:
            time.sleep(0.05)
        group.rmdir()


def enter(group: Path) -> None:
    """Have this process, and the children that it makes from now on, be charged to a group."""
    (group / _TASKS_FILE).write_text(str(os.getpid()), encoding="ascii")


def set_limit(group: Path, limit: int) -> None:
    """Have the kernel kill what exceeds it."""
    (group / _LIMIT_FILE).write_text(str(limit), encoding="ascii")


def kills(group: Path) -> int:
    """How many processes of a group the kernel has killed."""
    events = (group / "memory.oom_control").read_text().split()
    return int(events[events.index("oom_kill") + 1])
