"""The recurrent forward and backward passes in C++, on raw buffers: no framework is known here.

A `Call` describes a whole stack of layers: sizes, addresses, strides. `forward` and `backward` run it, on the fastest
instruction set that the machine has (the environment variable LOWTIDE_ISA forces another) and without Python's lock.
Whoever fills in a call keeps the memory that it points at alive until it returns. `problem.hpp` says what each field
means; frameworks get their own adapter elsewhere (`lowtide.ops.native` for PyTorch).

Beside them `copy_steps` and `clear_padding` make a padded batch of sequences that lie on disk (`ragged.hpp`).
"""

from __future__ import annotations

from lowtide.errors import UnsupportedError
from lowtide.kernels._native import (
    Call,
    Cell,
    Keep,
    LayerCall,
    PaddedSteps,
    Rows,
    activate,
    adopt_openmp,
    backward,
    clear_padding,
    copy_steps,
    forward,
    isa,
    prefer_huge_pages,
    sizes,
    team_source,
    usable_isas,
)

try:
    isa()
except ValueError as error:
    raise UnsupportedError(
        what=str(error),
        why="the kernels of another instruction set would end the process, and a misspelt name must not pass unseen",
        fix="set LOWTIDE_ISA to one of these, or unset it for the fastest",
    ) from error

__all__ = [
    "Call",
    "Cell",
    "Keep",
    "LayerCall",
    "PaddedSteps",
    "Rows",
    "activate",
    "adopt_openmp",
    "backward",
    "clear_padding",
    "copy_steps",
    "forward",
    "isa",
    "prefer_huge_pages",
    "sizes",
    "team_source",
    "usable_isas",
]
