"""Ragged sequences on disk, and batches of them in bounded memory. Loads no framework.

`lowtide.ingest` makes a store of any size from tables, text, arrays or a generator; `Store` opens one; its `loader`
gives batches of nearly equal lengths.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowtide.data.fields import Field, Schema
from lowtide.data.sequence import Sequence, SequenceArray
from lowtide.data.store import Store
from lowtide.data.view import View
from lowtide.data.writer import StoreWriter

if TYPE_CHECKING:
    from lowtide.data.batch import Batch
    from lowtide.data.lanes import Lanes
    from lowtide.data.loader import Loader
    from lowtide.data.settings import LoaderSettings
    from lowtide.data.split_rules import ByIds, BySequence, ByTime
    from lowtide.data.windows import Windows

__all__ = [
    "Batch",
    "ByIds",
    "BySequence",
    "ByTime",
    "Field",
    "Lanes",
    "Loader",
    "LoaderSettings",
    "Schema",
    "Sequence",
    "SequenceArray",
    "Store",
    "StoreWriter",
    "View",
    "Windows",
]

_WHEN_USED = {
    "Batch": "batch",
    "ByIds": "split_rules",
    "BySequence": "split_rules",
    "ByTime": "split_rules",
    "Lanes": "lanes",
    "Loader": "loader",
    "LoaderSettings": "settings",
    "Windows": "windows",
}
"""Names whose modules bring more than opening a store needs. (No function is among them that is called like its
module: importing the module would put it in the function's place.)"""


def __getattr__(name: str) -> object:
    if name in _WHEN_USED:
        value: object = getattr(importlib.import_module(f"lowtide.data.{_WHEN_USED[name]}"), name)
        globals()[name] = value
        return value
    message = f"module 'lowtide.data' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
