"""Plans that were made before, by what decides them: a second call answers at once."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.planning.budget import Budget
from lowtide.planning.plan import Plan

SETTING = "LOWTIDE_CACHE"
"""The folder that plans are kept in; "off" keeps none."""
_SAME_ROOM = 0.05
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
    room = plan.budget - plan.base_bytes
    plan = plan.rebased(budget.held)
    if plan.peak_bytes > budget.bytes or abs(budget.left - room) > _SAME_ROOM * room:
        return None
    return replace(plan, budget=budget.bytes, budget_source=budget.source)


def keep(plan: Plan, asked: object) -> None:
    """Remember a plan; where that cannot be done it is said, and the plan is good all the same."""
    place = _place(plan.fingerprint, asked)
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        plan.save(place)
    except (OSError, LowtideError) as error:
        said = error.what if isinstance(error, LowtideError) else error
        warnings.warn(
            f"the plan is not kept for the next call: {said}; set {SETTING} to a folder, or to off", stacklevel=3
        )


def _place(fingerprint: str, asked: object) -> Path | None:
    setting = os.environ.get(SETTING)
    if setting == "off":
        return None
    folder = Path(setting) if setting else _folder()
    return folder and folder / "plans" / f"{fingerprint}-{'auto' if asked is None else asked}.json"


def _folder() -> Path | None:
    """Among the user's caches; None where nobody knows of a home, as in some containers."""
    told = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(told or Path.home() / ".cache") / "lowtide"
    except RuntimeError:
        return None
