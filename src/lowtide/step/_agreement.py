"""When two runs of a model agree: tensors that are equal but for rounding, whole or put together from chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_HALVES = 0.05
_LOW_MATMUL = 0.01
_FULL = 1e-4
_NOISE = 1e-6
"""What is left of sums that cancel out, relative to the gradients that they are made of."""


class Pair(NamedTuple):
    """One tensor, of a whole run and of the run that it is compared with."""

    ours: Tensor
    theirs: Tensor
    time_axis: int | None
    """Where time lies; None for one result a sequence."""


@dataclass(frozen=True)
class Agreement:
    """How near two tensors must be: within 1e-4 of the largest entry, and further where products are rounded more."""

    autocast: bool
    """Whether autocast computes in halves, whatever the tensors are made of."""

    def tensors(self, ours: Tensor, theirs: Tensor, *, floor: float = 0.0) -> bool:
        """Whether two tensors are equal but for rounding, or differ by less than `floor` everywhere."""
        if ours.shape != theirs.shape:
            return False
        if not (ours.is_floating_point() or ours.is_complex()):
            return torch.equal(ours, theirs)
        one, other = _real(ours), _real(theirs)
        # Over the finite ones: a masked logit of minus infinity would allow everything.
        finite = one[one.isfinite()]
        scale = float(finite.abs().amax()) if finite.numel() else 0.0
        tolerance = max(self._relative(ours) * scale, floor) + 1e-30
        return bool(torch.isclose(one, other, rtol=0, atol=tolerance, equal_nan=True).all())

    def gradients(self, ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> list[bool]:
        """Whether the gradients of each parameter agree, those that are zero but for noise included."""
        dense = [[_dense(gradient) for gradient in gradients] for gradients in (ours, theirs)]
        largest = max((float(one.abs().amax()) for one in dense[0] if one is not None and one.numel()), default=0.0)
        floor = _NOISE * largest
        return [
            (one is None) == (other is None) and (one is None or other is None or self.tensors(one, other, floor=floor))
            for one, other in zip(*dense, strict=True)
        ]

    def _relative(self, tensor: Tensor) -> float:
        if self.autocast or torch.finfo(tensor.dtype).bits < 32:  # noqa: PLR2004 - float32
            return _HALVES
        if tensor.dtype == torch.float32 and (tensor.is_cuda or torch.get_float32_matmul_precision() != "highest"):
            return _LOW_MATMUL  # 10 bits, in cuDNN without having been asked
        return _FULL


def side_by_side(whole: Sequence[Tensor], chunks: Sequence[Sequence[Tensor]]) -> list[Pair] | None:
    """Each tensor beside the chunks' put together; None where they do not fit together."""
    if any(len(chunk) != len(whole) for chunk in chunks):
        return None
    pairs = [_joined(ours, [chunk[number] for chunk in chunks]) for number, ours in enumerate(whole)]
    found = [pair for pair in pairs if pair is not None]
    return found if len(found) == len(pairs) else None


def _joined(whole: Tensor, parts: Sequence[Tensor]) -> Pair | None:
    """What has no axis of time is one result a sequence, and the last chunk's counts."""
    for axis in range(whole.dim()):
        others = {part.shape[:axis] + part.shape[axis + 1 :] for part in parts if part.dim() == whole.dim()}
        if (
            all(part.dim() == whole.dim() for part in parts)
            and sum(part.shape[axis] for part in parts) == whole.shape[axis]
            and others == {whole.shape[:axis] + whole.shape[axis + 1 :]}
        ):
            return Pair(whole, torch.cat(list(parts), axis), axis)
    return Pair(whole, parts[-1], None) if parts[-1].shape == whole.shape else None


def _real(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    return (torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain).double()


def _dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
