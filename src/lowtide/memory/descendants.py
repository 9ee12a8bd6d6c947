"""The processes that descend from this one, and what each holds beyond what it shares with the others. Linux."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lowtide.memory.status import PROC, MemoryStatus, read_status, read_status_of

_STATE, _START_OF_CODE, _START_OF_STACK = 3, 26, 28
"""Numbers of fields of /proc/<process>/stat, as its manual counts them; the first two hold the process and its name."""


def has_children() -> bool:
    """Whether there is any child, dead ones that nobody waited for included: one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(*, proc: Path = PROC) -> list[int]:
    """The children of this process, their children, and so on.

    A process whose parent ended belongs to another one by then, and is not found.
    """
    main = (proc / "self").readlink().name
    if not (proc / "self" / "task" / main / "children").exists():  # a kernel without CONFIG_PROC_CHILDREN
        import psutil  # noqa: PLC0415 - takes 20 ms to load, which hardly any process needs

        return [child.pid for child in psutil.Process().children(recursive=True)]
    found: list[int] = []
    asked = [main]
    while asked:
        children = _children(proc / asked.pop())
        found += children
        asked += map(str, children)
    return found


def program(process: int | str = "self", *, proc: Path = PROC) -> tuple[str, str] | None:
    """Which start of a program a process goes back to; None where it ended.

    Told by where its code and stack begin: the same after a fork, drawn anew when a process starts another program.
    """
    try:
        text = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[_START_OF_CODE - _STATE], fields[_START_OF_STACK - _STATE]


def shared_with_others(process: int, status: MemoryStatus, *, proc: Path = PROC) -> int:
    """How much of what a child holds is counted already with the other processes of the tree.

    A child that was forked shares pages with its parent until one of the two writes to them, and the kernel charges
    such a page once. What such a child has to itself is what counts. A child that runs a program of its own can share
    pages with its own children and with whoever maps the same memory: of those it counts its proportion.
    """
    try:
        rollup = (proc / str(process) / "smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in rollup.splitlines()[1:]}
    if not sizes:
        return 0  # ended meanwhile
    proportion = sizes["Pss_Anon"] + sizes["Pss_Shmem"]
    forked = program(process, proc=proc) == program(proc=proc)
    own = sizes["Private_Dirty"] if forked else proportion
    return max(0, status.anonymous + status.shared - own)


def held_by_tree(*, proc: Path = PROC) -> int:
    """What this process and its descendants hold now and cannot give back, the kernel's pages for them included."""
    own = read_status(proc=proc)
    held = own.unreclaimable + own.kernel
    for child in descendants(proc=proc):
        status = read_status_of(child, proc=proc)
        if status is not None:
            held += status.unreclaimable + status.kernel - shared_with_others(child, status, proc=proc)
    return held


def _children(folder: Path) -> list[int]:
    """The children of each thread of a process; none where it has ended."""
    try:
        threads = list((folder / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    found: list[int] = []
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found
