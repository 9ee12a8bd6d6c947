"""What went into and came out of every module of a model in one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lowtide.step._sequence import leaves


class Call(NamedTuple):
    """One call of a module: the tensors that went in, and the floating-point ones that came out."""

    inputs: list[Tensor]
    outputs: list[Tensor]


Trace = dict[tuple[str, int], Call]
"""All calls by the module's path and the how-manieth call of it, in the order in which they ended: children before
their parents."""


@contextmanager
def recorded(model: nn.Module) -> Iterator[Trace]:
    """Record what goes into and comes out of every module while the block runs."""
    trace: Trace = {}
    counts: Counter[str] = Counter()

    def record(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ANN401 - any structure
            trace[path, counts[path]] = Call(tensors(inputs), floating(outputs))
            counts[path] += 1

        return hook

    # TorchScript knows no hooks.
    open_to_hooks = [
        (path, module) for path, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)
    ]
    handles = [module.register_forward_hook(record(path)) for path, module in open_to_hooks]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def tensors(data: Any) -> list[Tensor]:  # noqa: ANN401 - any structure
    """The tensors in a structure; of a PackedSequence its data."""
    found = [leaf.data if isinstance(leaf, PackedSequence) else leaf for leaf in leaves(data)]
    return [leaf for leaf in found if isinstance(leaf, Tensor)]


def floating(data: Any) -> list[Tensor]:  # noqa: ANN401 - any structure
    """The floating-point and complex tensors in a structure."""
    return [tensor for tensor in tensors(data) if tensor.is_floating_point() or tensor.is_complex()]
