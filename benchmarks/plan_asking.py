"""How `benchmarks.plan` asks its children, which may be killed, and keeps their answers: an interrupted run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cgroups import hindrance, kills, memory_group
from benchmarks.layers import write
from benchmarks.task import ROOT

MODULE = "benchmarks.plan"
_KILLED = -9
_SHOWN = 2000
"""Characters of a failed child's last words that are kept."""

Answer = dict[str, Any]
Show = Callable[[str], None]


def asked(request: dict[str, Any]) -> Answer:
    """What a child says; where it ended without saying anything, whether it was killed, and its last words."""
    command = [sys.executable, "-m", MODULE, "--child", json.dumps(request)]
    # A plan that is remembered would be made in no time.
    settings = {**os.environ, "LOWTIDE_CACHE": "off"}
    child = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    if child.returncode == 0:
        found: Answer = json.loads(child.stdout.splitlines()[-1])
        return found
    return {"killed": child.returncode == _KILLED, "words": child.stderr[-_SHOWN:]}


def asked_within(request: dict[str, Any], limit: int) -> Answer:
    """The same in a memory cgroup of its own with this limit, where one can be made; without a limit elsewhere."""
    if hindrance() is not None:
        return asked({**request, "group": None})
    with memory_group(limit) as group:
        found = asked({**request, "group": str(group)})
        if "words" in found:
            found["killed"] = found["killed"] or kills(group) > 0
        return found


def go_on(names: Sequence[str], kept: Path, measure: Callable[[str], Answer], show: Callable[[Answer], None]) -> None:
    """Measure what was not measured before, keep it at `kept`, and show all of it.

    What failed otherwise than by being killed is measured again.
    """
    known = recall(kept)
    for name in names:
        if name not in known or failed(known[name]):
            known[name] = measure(name)
            write(kept, json.dumps(known, indent=1))
        show(known[name])


def failed(found: Answer) -> bool:
    """Whether a child ended in an error of its own."""
    return "words" in found and not found["killed"]


def recall(kept: Path) -> dict[str, Answer]:
    """What was measured before."""
    known: dict[str, Answer] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    return known
