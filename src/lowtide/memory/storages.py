"""The memory behind tensors, counted once however many tensors share it. Torch's tensors alone; loads no framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Storages:
    """Remembers what was counted."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._seen: set[tuple[str, int]] = set()

    def count(self, tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
        """Go through the plain tensors that a tensor consists of.

        Yields:
            Each of them, with the bytes of its whole storage; those of a storage that was counted before are left out.
        """
        for plain in _plain(tensor):
            storage = plain.untyped_storage()
            key = (str(plain.device), storage.data_ptr())
            if storage.nbytes() and key not in self._seen:
                self._seen.add(key)
                yield plain, storage.nbytes()


def tensors_in(data: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - any structure that holds tensors
    """The tensors in mappings, sequences and dataclasses."""
    if hasattr(data, "untyped_storage"):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from tensors_in(value)
    elif isinstance(data, (tuple, list)):
        for value in data:
            yield from tensors_in(value)
    elif is_dataclass(data) and not isinstance(data, type):
        yield from tensors_in(vars(data))


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor itself, or what a sparse or a wrapping one is made of."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _plain(getattr(tensor, name))
    elif tensor.is_sparse:
        yield tensor._indices()  # noqa: SLF001 - `indices()` wants a tensor that was coalesced, which copies it
        yield tensor._values()  # noqa: SLF001
    else:
        yield tensor
