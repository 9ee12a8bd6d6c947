"""Ragged sequences on disk, and batches of them in bounded memory. Loads no framework.

`lowtide.ingest` makes a store of any size from tables, text, arrays or a generator; `Store` opens one; its `loader`
gives batches of nearly equal lengths.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowtide.data.disk.writer import StoreWriter
from lowtide.data.fields import Field, Schema
from lowtide.data.sequence import Sequence, SequenceArray
from lowtide.data.store import Store
from lowtide.data.view import View

if TYPE_CHECKING:
    from lowtide.data.batch import Batch
    from lowtide.data.loading.lanes import Lanes
    from lowtide.data.loading.loader import Loader
    from lowtide.data.loading.settings import LoaderSettings
    from lowtide.data.loading.windows import Windows
    from lowtide.data.splitting.rules import ByIds, BySequence, ByTime

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
    "ByIds": "splitting.rules",
    "BySequence": "splitting.rules",
    "ByTime": "splitting.rules",
    "Lanes": "loading.lanes",
    "Loader": "loading.loader",
    "LoaderSettings": "loading.settings",
    "Windows": "loading.windows",
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
