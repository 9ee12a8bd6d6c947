"""What is mounted where, as this process sees it: /proc/self/mountinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lowtide.memory.status import PROC


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    device: str
    """Major and minor number, with a colon between them."""
    root: str
    """The folder of the file system that is mounted."""
    point: Path
    """Where it is mounted."""
    kind: str
    options: tuple[str, ...]
    """Those of the file system, not of the mount."""


def read_mounts(*, proc: Path = PROC) -> list[Mount]:
    """All mounts, in the order in which they were made."""
    text = (proc / "self" / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [_parse(line) for line in text.splitlines()]


def _parse(line: str) -> Mount:
    mounted, _, described = line.partition(" - ")
    _, _, device, root, point, *_ = mounted.split(" ")
    kind, _, options = described.split(" ", 2)
    return Mount(device, _plain(root), Path(_plain(point)), kind, tuple(options.split(",")))


def _plain(name: str) -> str:
    """Undo the kernel's escapes: a blank is written as backslash 040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)
