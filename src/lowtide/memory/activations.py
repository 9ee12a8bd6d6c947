"""What a forward pass keeps for the backward pass, by the module that keeps it.

Every tensor that autograd saves passes by a hook, which notes whose forward is running. What is let go before the pass
ends is not counted, and of what several modules keep, the first has it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lowtide.memory.storages import Storages

if TYPE_CHECKING:
    import torch
    from torch import nn

OUTSIDE = "outside of the model"
"""Whose what is kept by the loss is."""


class _Kept:
    """What autograd holds in a saved tensor's place: gone when autograd lets it go."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()  # an output that held itself would never be let go


def kept_by_module(model: nn.Module, run: Callable[[], Any], storages: Storages) -> dict[tuple[str, str], int]:
    """Run a forward pass, and leave the model and torch's random state as they were.

    Args:
        model: Whose modules are told apart.
        run: Runs the forward pass. What it returns is kept until all is counted.
        storages: What counts elsewhere already.

    Returns:
        Bytes by module's path and device, in the order in which modules kept something.
    """
    import torch  # noqa: PLC0415 - this part loads no framework by itself

    kept: list[tuple[str, weakref.ref[_Kept]]] = []
    running = [OUTSIDE]

    def pack(tensor: torch.Tensor) -> _Kept:
        one = _Kept(tensor)
        kept.append((running[-1], weakref.ref(one)))
        return one

    def unpack(one: _Kept) -> torch.Tensor:
        return one.tensor

    with (
        _untouched(model),
        _paths(model, running),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(pack, unpack),
    ):
        result = run()
    sizes: dict[tuple[str, str], int] = {}
    for path, reference in kept:
        one = reference()
        for plain, size in storages.count(one.tensor) if one is not None else ():
            place = (path, str(plain.device))
            sizes[place] = sizes.get(place, 0) + size
    del result
    return sizes


@contextmanager
def _paths(model: nn.Module, running: list[str]) -> Iterator[None]:
    """Keep the path of the module whose forward runs at the end of a list."""
    handles = []
    for path, module in model.named_modules():
        name = path or type(model).__name__

        def enter(_module: nn.Module, _inputs: object, name: str = name) -> None:
            running.append(name)

        def leave(_module: nn.Module, _inputs: object, _outputs: object) -> None:
            running.pop()

        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Put buffers and random state back: batch normalisation counts its batches, dropout draws."""
    import torch  # noqa: PLC0415

    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    gpus = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=gpus):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
