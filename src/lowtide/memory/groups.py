"""The control groups of this process, versions 1 and 2, as far up as they can be seen, and what is written in them.

A container often sees only its own part of the hierarchy. Where that part is mounted (mountinfo) and where this process
is (/proc/self/cgroup) need not fit together: then the group that is mounted is the nearest that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowtide.memory.mounts import Mount, read_mounts
from lowtide.memory.status import PROC

NO_LIMIT = 1 << 62
"""Version 1 writes a limit that is not there as the largest multiple of a page below 2 ** 63."""


@dataclass(frozen=True)
class Group:
    """One control group."""

    folder: Path
    version: Literal[1, 2]

    def number(self, name: str) -> int | None:
        """The number in a file of the group; None where there is no such file or it says that nothing is set."""
        text = self.text(name)
        if text is None or text == "max":
            return None
        value = int(text)
        return value if 0 <= value < NO_LIMIT else None

    def text(self, name: str) -> str | None:
        """What a file of the group says; None where there is no such file."""
        try:
            return (self.folder / name).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def statistics(self) -> dict[str, int]:
        """The numbers in memory.stat by name."""
        lines = (self.text("memory.stat") or "").splitlines()
        return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}

    def __str__(self) -> str:
        return f"{self.folder} (cgroup v{self.version})"


def read_groups(controller: str, *, proc: Path = PROC) -> list[Group]:
    """This process's groups for a controller and every ancestor in sight, from the innermost, version 1 first."""
    joined = proc / "self" / "cgroup"
    if not joined.exists():
        return []  # macOS, Windows, a kernel without control groups
    mounts = read_mounts(proc=proc)
    found: list[Group] = []
    for line in joined.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            fitting = [one for one in mounts if one.kind == "cgroup" and controller in one.options]
            found += [Group(folder, 1) for folder in _chain(fitting, path)]
        elif number == "0" and not controllers:
            fitting = [one for one in mounts if one.kind == "cgroup2"]
            found += [Group(folder, 2) for folder in _chain(fitting, path)]
    return found


def kernel_charge(*, proc: Path = PROC) -> int | None:
    """What the kernel charges to this process's memory group for itself; None where it does not tell."""
    for group in read_groups("memory", proc=proc):
        charge = group.number("memory.kmem.usage_in_bytes") if group.version == 1 else group.statistics().get("kernel")
        if charge is not None:
            return charge
    return None


def _chain(mounts: list[Mount], path: str) -> list[Path]:
    """The folders of a group and its ancestors, from the innermost that can be seen to the one that is mounted."""
    for mount in mounts:
        if Path(path).is_relative_to(mount.root) and ".." not in Path(path).parts:
            folder = mount.point / Path(path).relative_to(mount.root)
            chain = [folder, *folder.parents]
            return [one for one in chain[: chain.index(mount.point) + 1] if one.is_dir()]
    return [mount.point for mount in mounts[:1]]
