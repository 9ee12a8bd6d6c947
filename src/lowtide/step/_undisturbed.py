"""Modules as they were before they were tried: their buffers and the dropout of their recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Buffers = dict[nn.Module, dict[str, Tensor | None]]


@contextmanager
def undisturbed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Switch off dropout that is drawn inside of recurrent layers' kernels, and put everything back afterwards.

    Buffers that a forward changes, replaces or registers are again what they were.
    """
    parts = list(dict.fromkeys(part for module in modules for part in module.modules()))
    dropouts = {layer: layer.dropout for layer in parts if isinstance(layer, nn.RNNBase)}
    tensors: Buffers = {part: dict(part._buffers) for part in parts if not _is_script(part)}  # noqa: SLF001 - as is
    contents = {
        buffer: buffer.detach().clone()
        for part in parts
        for buffer in part.buffers(recurse=False)
        if not is_lazy(buffer)
    }
    for layer in dropouts:
        layer.dropout = 0.0
    try:
        yield
    finally:
        for layer, dropout in dropouts.items():
            layer.dropout = dropout
        _restore(tensors, contents)


def _is_script(part: nn.Module) -> bool:
    """Whether it is TorchScript's, whose buffers never change places."""
    return isinstance(part, torch.jit.ScriptModule)


def _restore(tensors: Buffers, contents: dict[Tensor, Tensor]) -> None:
    for part, own in tensors.items():
        for name in set(part._buffers) - set(own):  # noqa: SLF001 - the dictionary itself
            delattr(part, name)
        part._buffers.update(own)  # noqa: SLF001 - the dictionary itself
    with torch.no_grad():
        for buffer, content in contents.items():
            if buffer.shape == content.shape:
                buffer.copy_(content)
            else:  # it was resized in place
                buffer.resize_(content.shape).copy_(content)
