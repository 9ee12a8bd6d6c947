"""What a measuring child is asked to do, and how it is asked: an interpreter of its own, JSON in and JSON out.

An allocator remembers and a thread pool stays, so nothing is measured where something else was measured before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.contestant import Contestant
from benchmarks.work import Work

ROOT = Path(__file__).resolve().parent.parent
FOREIGN_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE", "LOWTIDE_")
"""Beginnings of variables that would change what is measured; a child sees only those that its table sets."""


@dataclass(frozen=True)
class Task:
    """One measurement."""

    measure: Literal["seconds", "growth"]
    work: Work
    contestants: tuple[Contestant, ...]
    """Several take turns at seconds; growth is that of a single one."""
    repeats: int = 1
    """Steps that count, for seconds."""
    slow_first: bool = False
    """Whether the first contestant takes so long that it runs fewer steps."""

    def to_json(self) -> str:
        """Write the task in one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return Task(
            measure=fields["measure"],
            work=Work(**fields["work"]),
            contestants=tuple(Contestant(**one) for one in fields["contestants"]),
            repeats=fields["repeats"],
            slow_first=fields["slow_first"],
        )


def ask_child(request: str, settings: Mapping[str, str], *, module: str = "benchmarks.layers") -> Any:  # noqa: ANN401 - each request has its own answer
    """Have a child of its own answer a request, and wait for it.

    Args:
        request: A task as JSON, or "machine".
        module: The benchmark whose child it is.
        settings: Environment variables of the child, beside this process's own that do not change measurements.

    Raises:
        subprocess.CalledProcessError: The child failed; what it said went to standard error.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_SETTINGS)}
    command = [sys.executable, "-m", module, "--child", request]
    child = subprocess.run(
        command, cwd=ROOT, env={**inherited, **settings}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(child.stdout)
