"""Plans that were made before, by what decides them: a second call answers at once."""

from __future__ import annotations

import os
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.planning.budget import Budget
from lowtide.planning.plan import Plan

SETTING = "LOWTIDE_CACHE"
"""The folder that plans are kept in; "off" keeps none."""
_SAME_BUDGET = 0.05
"""Relative difference in the room for training up to which a plan is taken for another budget."""


def cached(fingerprint: str, budget: Budget, asked: object) -> Plan | None:
    """A plan for this, rebased on what is held now; None where there is none that fits."""
    place = _place(fingerprint, asked)
    if place is None or not place.exists():
        return None
    try:
        plan = Plan.load(place)
    except LowtideError:
        return None  # of another version, damaged, or too large by now: it is made anew
    plan = plan.rebased(budget.held)
    there = plan.budget - plan.base_bytes
    if plan.peak_bytes > budget.bytes or abs(budget.left - there) > _SAME_BUDGET * there:
        return None
    return plan


def keep(plan: Plan, asked: object) -> None:
    """Remember a plan."""
    place = _place(plan.fingerprint, asked)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        plan.save(place)


def _place(fingerprint: str, asked: object) -> Path | None:
    setting = os.environ.get(SETTING)
    if setting == "off":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(setting) if setting else home / "lowtide"
    return folder / "plans" / f"{fingerprint}-{'auto' if asked is None else asked}.json"
