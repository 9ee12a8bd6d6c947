"""How a step computes wherever it is called: with gradients, and with compiled parts uncompiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def plain_autograd() -> Iterator[None]:
    """Gradients on, inference mode off, and compiled parts uncompiled: their graphs know nothing of carried states."""
    compiled = "torch._dynamo" in sys.modules  # importing it takes seconds
    uncompiled = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    with torch.inference_mode(mode=False), torch.enable_grad(), uncompiled:
        yield
