"""Dropout between layers: drawn as the stock layer draws it, kept as one bit an element, applied a few rows at a time.

A stack drops elements of every layer's output but the last one's. torch draws each of these masks with
`torch.empty(shape).bernoulli_(1 - p)` over the whole time-major output, layer 0's first. The generator does not mind
the dtype and the shape, only the count, so the draws here are the same bits from the same random state. (On CUDA the
stock layer lets cuDNN draw from a state of its own: there the masks are equal in distribution only.)

A mask is a flat uint8 tensor. Element i of the output, counted row-major over (rows, width), is kept where bit i & 7 of
byte i >> 3 is set; bits past the last element are clear. The native kernels read the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lowtide.ops.spec import StackSpec

_BLOCK = 1 << 20
"""Elements packed at once, a multiple of 8: bounds the temporaries."""
_GATHER = 0x0102040810204080
"""Times eight bytes that are 0 or 1, read as one little-endian integer: its top byte holds byte k's value as bit k.
Byte k, shifted by 56 - 7k, lands on bit 56 + k; no two products share a bit, so nothing carries."""


def draw_masks(spec: StackSpec, rows: int, device: torch.device) -> list[Tensor]:
    """Draw the masks of one forward pass, one for each boundary between layers; none where nothing is dropped.

    `rows` is T * B for dense inputs, the rows of a PackedSequence's data, and with lengths their sum. The draw itself
    needs four bytes an element on a CPU (torch's own size for it) until it is packed.
    """
    if spec.dropout == 0:
        return []
    elements = rows * spec.output_size
    return [_draw(elements, spec.dropout, device) for _ in range(spec.num_layers - 1)]


def apply_mask(bits: Tensor, row_start: int, rows: Tensor, p: float) -> Tensor:
    """Drop from `rows`, (..., width), that lie row after row from `row_start` on; differentiable in `rows`."""
    first = row_start * rows.shape[-1]
    stop = first + rows.numel()
    unpacked = _unpack(bits[first >> 3 : (stop + 7) >> 3])
    kept = unpacked[first & 7 : (first & 7) + rows.numel()]
    return _scale(kept.view(rows.shape), rows, p)


def apply_mask_at(bits: Tensor, row_numbers: Tensor, rows: Tensor, p: float) -> Tensor:
    """Drop from `rows`, (n, width), that lie at `row_numbers`, (n,), in any order; differentiable in `rows`."""
    width = rows.shape[-1]
    element = row_numbers[:, None] * width + torch.arange(width, device=row_numbers.device)
    kept = (bits[element >> 3] >> (element & 7).to(torch.uint8)) & 1
    return _scale(kept, rows, p)


def _draw(elements: int, p: float, device: torch.device) -> Tensor:
    if p == 1:  # torch draws nothing then
        return torch.zeros((elements + 7) >> 3, dtype=torch.uint8, device=device)
    # On a CPU torch draws into int32 and copies: asking for int32 saves that copy.
    drawn = torch.empty(elements, dtype=torch.int32 if device.type == "cpu" else torch.uint8, device=device)
    drawn.bernoulli_(1 - p)
    bits = torch.empty((elements + 7) >> 3, dtype=torch.uint8, device=device)
    for start in range(0, elements, _BLOCK):
        packed = _pack(drawn[start : start + _BLOCK])
        bits[start >> 3 : (start >> 3) + packed.numel()] = packed
    return bits


def _pack(kept: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(kept.to(torch.uint8), (0, -kept.numel() % 8))
    return (padded.view(torch.int64) * _GATHER >> 56).to(torch.uint8)


def _unpack(bits: Tensor) -> Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (bits[:, None] >> places & 1).flatten()


def _scale(kept: Tensor, rows: Tensor, p: float) -> Tensor:
    """Multiply by the noise that torch.dropout multiplies by, rounded as torch rounds it."""
    noise = kept.to(rows.dtype)
    return rows * (noise if p == 1 else noise.div_(1 - p))
