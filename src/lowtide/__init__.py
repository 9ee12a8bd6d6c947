"""Lowtide trains recurrent networks inside the memory that is there, with the same gradients as if it were endless.

`import lowtide` loads no framework: a name that needs one brings it when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowtide.errors import LowtideError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from lowtide import data, memory, nn, ops, planning
    from lowtide.data.ingest import ingest
    from lowtide.data.store import Store
    from lowtide.nn.lean import lean, stock
    from lowtide.planning.plan import Plan
    from lowtide.planning.planner import fits, plan
    from lowtide.step.planned import PlannedStep
    from lowtide.step.stream import StreamStep

__version__ = "0.1.0"

__all__ = [
    "LowtideError",
    "MissingExtraError",
    "Plan",
    "PlannedStep",
    "Store",
    "StreamStep",
    "UnsupportedError",
    "data",
    "fits",
    "ingest",
    "lean",
    "memory",
    "nn",
    "ops",
    "plan",
    "planning",
    "stock",
]

_SUBPACKAGES = {"data", "memory", "nn", "ops", "planning"}
_MEMBERS = {
    "Plan": "lowtide.planning",
    "PlannedStep": "lowtide.step",
    "Store": "lowtide.data",
    "StreamStep": "lowtide.step",
    "fits": "lowtide.planning.planner",
    "ingest": "lowtide.data.ingest",
    "lean": "lowtide.nn",
    "plan": "lowtide.planning.planner",
    "stock": "lowtide.nn",
}
"""Names that are not parts, and the module that each comes from."""
_EXTRAS = {"torch": "torch"}
"""A module that may be missing, and the extra that brings it."""


def __getattr__(name: str) -> object:
    if name in _SUBPACKAGES:
        return _load(f"lowtide.{name}", wanted_by=name)
    if name in _MEMBERS:
        value: object = getattr(_load(_MEMBERS[name], wanted_by=name), name)
        globals()[name] = value
        return value
    message = f"module 'lowtide' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _load(module: str, *, wanted_by: str) -> object:
    """Import a part of Lowtide; a framework that is not there becomes an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtraError(
            what=f"`lowtide.{wanted_by}` needs the package {error.name!r}, which is not installed",
            why="Lowtide's base holds no framework, so that each user installs only the one that is used",
            fix=f'pip install "lowtide[{extra}]"',
        ) from error
