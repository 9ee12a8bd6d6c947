"""What went into and came out of every module of a model in one run, and how runs are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lowtide.step._sequence import leaves


class Call(NamedTuple):
    """One call of a module: the floating-point tensors that went in and came out."""

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
            trace[path, counts[path]] = Call(floating(inputs), floating(outputs))
            counts[path] += 1

        return hook

    handles = [module.register_forward_hook(record(path)) for path, module in model.named_modules()]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def floating(data: Any) -> list[Tensor]:  # noqa: ANN401 - any structure
    """The floating-point tensors in a structure; of a PackedSequence its data."""
    return [leaf for leaf in leaves(data) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def joined(whole: Tensor, parts: Sequence[Tensor]) -> tuple[Tensor, int | None] | None:
    """Put the parts of chunks together as the whole batch has them; and the axis of time, None where there is none.

    What has no axis of time is one result a sequence, and the last chunk's counts. None: they do not fit together.
    """
    for axis in range(whole.dim()):
        sizes = [part.shape[axis] for part in parts if part.dim() == whole.dim()]
        others = {part.shape[:axis] + part.shape[axis + 1 :] for part in parts}
        if (
            len(sizes) == len(parts)
            and sum(sizes) == whole.shape[axis]
            and others == {whole.shape[:axis] + whole.shape[axis + 1 :]}
        ):
            return torch.cat(list(parts), axis), axis
    return (parts[-1], None) if parts[-1].shape == whole.shape else None


def agree(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors are equal but for rounding."""
    if ours.shape != theirs.shape:
        return False
    one, other = ours.detach().double(), theirs.detach().double()
    scale = float(one.abs().amax()) if one.numel() else 0.0
    precise = torch.finfo(ours.dtype).bits >= 32  # noqa: PLR2004 - float32 and float64
    tolerance = (1e-3 if precise else 0.05) * scale + 1e-30
    return bool(torch.isclose(one, other, rtol=0, atol=tolerance, equal_nan=True).all())
