"""Lets torch.compile look into lean layers.

Dynamo refuses every subclass of torch.nn.LSTM, GRU and RNN unless `torch._dynamo.config.allow_rnn` is set, because
it cannot trace the stock layers' C++ loops. A lean layer is made of operators that it can trace, so constructing,
leaning or loading one sets the flag. Dynamo's configuration belongs to a thread: a model that is compiled in another
thread than the one that made it needs the flag set there by hand.

Importing `torch._dynamo` takes seconds and tens of megabytes, so the flag waits for whoever imports it first.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

_CONFIG = "torch._dynamo.config"


def allow_in_dynamo() -> None:
    """Set `torch._dynamo.config.allow_rnn`, at once or as soon as Dynamo is imported."""
    config = sys.modules.get(_CONFIG)
    if config is not None:
        config.allow_rnn = True  # type: ignore[attr-defined]
    elif not any(isinstance(finder, _ConfigFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ConfigFinder())


class _ConfigFinder(MetaPathFinder):
    """Stands in the way of one import, Dynamo's configuration, and then steps aside."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - given by the import system
        target: ModuleType | None = None,  # noqa: ARG002 - given by the import system
    ) -> ModuleSpec | None:
        if fullname != _CONFIG:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _ConfigLoader(spec.loader.name, spec.loader.path)
        return spec


class _ConfigLoader(SourceFileLoader):
    """Loads Dynamo's configuration and sets the flag in it."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.allow_rnn = True  # type: ignore[attr-defined]
