"""The limits on main memory: of control groups, of this process, of the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from lowtide.memory.groups import NO_LIMIT, Group, read_groups
from lowtide.memory.room import Room
from lowtide.memory.sizes import in_words
from lowtide.memory.status import PROC, read_status

_LIMITS = {
    1: {"memory.limit_in_bytes": ""},
    2: {"memory.max": "", "memory.high": ", above which the kernel slows the group down"},
}
"""Where each version keeps its limits, and what is to be said of one."""
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_RECLAIMABLE = {
    1: ("total_active_file", "total_inactive_file"),
    2: ("active_file", "inactive_file", "slab_reclaimable"),
}
"""Names in memory.stat of what a group is charged for and the kernel can take back."""
_HIDDEN = "hierarchical_memory_limit"
"""Name in version 1's memory.stat of the tightest limit of all ancestors, those included that cannot be seen."""
_RLIMITS = {"Max address space": "RLIMIT_AS", "Max data size": "RLIMIT_DATA"}
"""The titles of /proc/<process>/limits, and the names that people know."""


def host_rooms(held: int, *, proc: Path = PROC) -> list[Room]:
    """Every limit on main memory that is set, in no order.

    Args:
        held: What this process tree holds now.
        proc: Where the proc file system is.
    """
    if sys.platform != "linux":
        return [_machine_by_psutil()]
    return [*_of_groups(held, proc), *_of_process(proc), _of_machine(proc)]


def _of_groups(held: int, proc: Path) -> list[Room]:
    groups = read_groups("memory", proc=proc)
    rooms = [room for group in groups for room in _of_group(group, held, inner=group == groups[0])]
    return [*rooms, *_out_of_sight([group for group in groups if group.version == 1], rooms, held)]


def _out_of_sight(groups: list[Group], rooms: list[Room], held: int) -> Iterator[Room]:
    hidden = groups[0].statistics().get(_HIDDEN, NO_LIMIT) if groups else NO_LIMIT
    if hidden < min([NO_LIMIT, *(room.total for room in rooms)]):
        what = f"memory limit of a group above {groups[-1]}, out of sight (from {_HIDDEN} in memory.stat)"
        yield _room(what, hidden, _charged(groups[-1]), held)


def _of_group(group: Group, held: int, *, inner: bool) -> Iterator[Room]:
    if not inner and group.number("memory.use_hierarchy") == 0:
        return  # charged for its own processes alone, as version 1 once did by default
    for name, remark in _LIMITS[group.version].items():
        total = group.number(name)
        if total is not None:
            yield _room(f"{name} of {group}{remark}", total, _charged(group), held)


def _room(what: str, total: int, charged: int, held: int) -> Room:
    others = max(0, charged - held)  # less is charged than held where pages were charged to a group left since
    source = f"{what}: {in_words(total)}, others in the group hold {in_words(others)}"
    return Room(total - held - others, total, "resident memory", source)


def _charged(group: Group) -> int:
    """What a group is charged for and the kernel cannot take back."""
    usage, statistics = group.number(_USAGE[group.version]) or 0, group.statistics()
    return usage - sum(statistics.get(name, 0) for name in _RECLAIMABLE[group.version])


def _of_process(proc: Path) -> Iterator[Room]:
    """Limits on address space, which counts what was mapped and never touched: they bind before memory is full."""
    for line in (proc / "self" / "limits").read_text(encoding="ascii").splitlines():
        for title, name in _RLIMITS.items():
            soft = line.removeprefix(title).split()[0]
            if line.startswith(title) and soft != "unlimited":
                status = read_status(proc=proc)
                taken = status.address_space if name == "RLIMIT_AS" else status.data
                source = f"{name}: {in_words(int(soft))} of address space, {in_words(taken)} taken, touched or not"
                yield Room(int(soft) - taken, int(soft), "address space", source)


def _of_machine(proc: Path) -> Room:
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return _machine(sizes["MemTotal"], sizes["MemAvailable"])


def _machine_by_psutil() -> Room:
    import psutil  # noqa: PLC0415 - takes 20 ms to load, which Linux does not need

    memory = psutil.virtual_memory()
    return _machine(memory.total, memory.available)


def _machine(total: int, available: int) -> Room:
    source = f"physical memory, {in_words(available)} of {in_words(total)} available"
    return Room(available, total, "resident memory", source)
