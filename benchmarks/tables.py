"""Measures a trial: asks children for the figures of each race and puts them side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from benchmarks.contestant import Contestant
from benchmarks.report import Comparison, Measured, Table, Unit
from benchmarks.targets import Race, Trial
from benchmarks.task import Task, ask_child


def measure_table(trial: Trial, *, only: str, repeats: int) -> Table:
    """Run the races of a trial whose work has `only` in its title, one after another.

    Args:
        trial: What to measure.
        only: Part of a title, in any case; the empty string takes all.
        repeats: Steps of each contestant, the best of which counts.
    """
    rows: list[Comparison] = []
    for race in trial.races:
        if only.lower() in race.work.title.lower():
            print(f"{trial.name}: {race.work.title}", file=sys.stderr, flush=True)
            rows += _compare(race, _measure(trial, race, repeats=repeats))
    unit: Unit = "ms" if trial.measure == "seconds" else "MB"
    return Table(trial.name, trial.title, unit, trial.sides, dict(trial.settings), tuple(rows))


def _measure(trial: Trial, race: Race, *, repeats: int) -> dict[Contestant, Measured]:
    contestants = (race.baseline, *race.wanted)
    if trial.measure == "growth":
        return {one: Measured((_growth(trial, race, one),)) for one in contestants}
    task = Task("seconds", race.work, contestants, repeats, race.slow_baseline)
    seconds = ask_child(task.to_json(), trial.settings)
    return {
        one: Measured(tuple(values), _growth(trial, race, one) if trial.with_growth else None)
        for one, values in zip(contestants, seconds, strict=True)
    }


def _growth(trial: Trial, race: Race, contestant: Contestant) -> int:
    grown: int = ask_child(Task("growth", race.work, (contestant,)).to_json(), trial.settings)
    return grown


def _compare(race: Race, measured: Mapping[Contestant, Measured]) -> list[Comparison]:
    return [
        Comparison(race.work.title, str(one.keep), measured[race.baseline], measured[one], wanted)
        for one, wanted in race.wanted.items()
    ]
