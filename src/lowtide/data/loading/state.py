"""Where a loader is, as plain values: what can be gone on from, and what is refused as other batches would come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.data.loading.drafts import PositionData
from lowtide.data.loading.settings import LoaderSettings
from lowtide.errors import LowtideError

_VERSION = 1


def state_of(data: str, settings: LoaderSettings, place: PositionData) -> dict[str, Any]:
    """A place in the batches of some data, in numbers and text: for JSON, or torch.save.

    Args:
        data: A name for the content.
        settings: What makes batches of it.
        place: Between two batches.
    """
    return {"version": _VERSION, "data": data, "settings": settings.deciding(), "position": dict(place)}


def place_in(state: Any, data: str, settings: LoaderSettings) -> PositionData:  # noqa: ANN401 - what a file held, perhaps
    """The place that a state tells, whose position is still to be looked at.

    Raises:
        LowtideError: It is of other data or other settings, or is no such state.
    """
    expected = state_of(data, settings, {})
    whole = isinstance(state, Mapping) and set(state) == set(expected) and isinstance(state["settings"], Mapping)
    if not whole or state["version"] != _VERSION:
        raise _not_resumable("it is no state of this version's loader", "give what state_dict() returned")
    if state["data"] != data:
        raise _not_resumable("it belongs to other data", "load with the store and part, or the lengths, that it had")
    mine, its = expected["settings"], state["settings"]
    other = [f"{name}={its.get(name)!r} (here {mine[name]!r})" for name in mine if its.get(name) != mine[name]]
    if other:
        raise _not_resumable(f"it was made with {', '.join(other)}", "load with the same settings")
    place: PositionData = state["position"]
    return place


def check_epoch(epoch: object) -> None:
    """Refuse what is no number of an epoch.

    Raises:
        LowtideError: It is not a whole number of at least 0.
    """
    if type(epoch) is not int or epoch < 0:
        raise LowtideError(
            what=f"set_epoch({epoch!r})",
            why="epochs are counted from 0",
            fix="give a whole number of at least 0",
        )


def check_running(mine: object, running: object) -> None:
    """Refuse to go on with a loop that is not the last one begun.

    Raises:
        LowtideError: Another was begun, or the loader was set elsewhere.
    """
    if running is not mine:
        raise LowtideError(
            what="a loop over a loader went on after another one was begun, or after the loader was set elsewhere",
            why="a loader is at one place",
            fix="make a second loader for a loop inside of a loop",
        )


def _not_resumable(what: str, fix: str) -> LowtideError:
    return LowtideError(
        what=f"the loader's state cannot be gone on from: {what}",
        why="other batches would come than those that the interrupted run would have had",
        fix=fix,
    )
