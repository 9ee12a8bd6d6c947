"""What a measuring child does with a request; the only module besides its helpers that loads torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.contest import grow, time_contestants
from benchmarks.machine import describe_machine
from benchmarks.task import Task


def answer(request: str) -> Any:  # noqa: ANN401 - each request has its own answer, all of them fit for JSON
    """Answer "machine" with its description and a task with its measurement."""
    if request == "machine":
        return asdict(describe_machine())
    task = Task.from_json(request)
    if task.measure == "seconds":
        return time_contestants(task.work, task.contestants, repeats=task.repeats, slow_first=task.slow_first)
    (contestant,) = task.contestants
    return grow(task.work, contestant)
