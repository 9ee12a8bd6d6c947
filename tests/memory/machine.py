"""A made-up machine: /proc and control groups as files, for what this one is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.memory.pages import MIB

NO_LIMIT = 9223372036854771712
PROCESS = 100


@dataclass
class MadeUpMachine:
    """A machine with 16 GiB, 12 of them available, and one process that holds 512 MiB."""

    folder: Path
    mounts: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        process = self.proc / str(PROCESS)
        thread = process / "task" / str(PROCESS)
        thread.mkdir(parents=True)
        (self.proc / "self").symlink_to(str(PROCESS))
        (thread / "children").write_text("")
        (self.proc / "meminfo").write_text(meminfo(total=16384, available=12288))
        (process / "status").write_text(status(anonymous=480, shared=32, file=200, data=900, size=4000))
        self.write_groups()
        self.set_limits()

    @property
    def proc(self) -> Path:
        """Where its proc file system is."""
        return self.folder / "proc"

    def set_limits(self, *, address_space: str = "unlimited", data: str = "unlimited") -> None:
        """Write the process's rlimits, as the kernel does."""
        lines = [
            "Limit                     Soft Limit           Hard Limit           Units     ",
            f"Max data size             {data:<20} unlimited            bytes     ",
            f"Max address space         {address_space:<20} unlimited            bytes     ",
        ]
        (self.proc / "self" / "limits").write_text("\n".join(lines) + "\n")

    def mount(self, kind: str, at: str, *, root: str = "/", options: str = "rw") -> Path:
        """Mount a hierarchy of control groups; return where."""
        point = self.folder / at
        point.mkdir(parents=True)
        escaped = str(point).replace(" ", "\\040")
        self.mounts.append(f"35 31 0:32 {root} {escaped} rw,relatime shared:7 - {kind} {kind} {options}")
        self.write_groups()
        return point

    def join(self, line: str) -> None:
        """Put the process into a group, by a line of /proc/self/cgroup."""
        self.groups.append(line)
        self.write_groups()

    def write_groups(self) -> None:
        """Write what was mounted and joined so far."""
        root = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw"
        (self.proc / "self" / "mountinfo").write_text("\n".join([root, *self.mounts]) + "\n")
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in self.groups))


def make_group(folder: Path, **files: object) -> Path:
    """Write a group's files; in their names, two underscores stand for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")
    return folder


def meminfo(*, total: int, available: int) -> str:
    """The first lines of /proc/meminfo, from MiB."""
    return (
        f"MemTotal: {total * 1024} kB\nMemFree: 1024 kB\nMemAvailable: {available * 1024} kB\nSwapTotal: 8388608 kB\n"
    )


def status(*, anonymous: int, shared: int, file: int, data: int, size: int) -> str:
    """The lines of /proc/<process>/status that tell of memory, from MiB. One thread, no page tables to speak of."""
    resident = anonymous + shared + file
    sizes = {"VmSize": size, "VmHWM": resident, "VmRSS": resident, "RssAnon": anonymous, "RssFile": file}
    sizes |= {"RssShmem": shared, "VmData": data, "VmSwap": 0, "VmPTE": 0}
    return "Name:\tpython\n" + "".join(f"{name}:\t{value * MIB // 1024} kB\n" for name, value in sizes.items())
