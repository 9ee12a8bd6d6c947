"""What `watch` measured, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never

from lowtide.errors import LowtideError
from lowtide.memory.cuda import CudaPeak
from lowtide.memory.sizes import in_words


@dataclass(init=False, repr=False)
class Peak:
    """The highest that a process tree rose in a block: memory that counts against a limit and cannot be taken back.

    The figures are there once the block has ended. `anonymous`, `shared`, `kernel` and `children` add up to `bytes`.
    """

    bytes: int
    """The tree held at most this much at any time: the figure to set against a limit."""
    at_least: int
    """And at its highest at least this much; equal to `bytes` up to some pages where the measurement is exact."""
    exact: bool
    """Whether the two agree."""
    method: str
    """How it was measured, and what kept it from being exact."""
    start: int
    """What the tree held when the block began."""
    anonymous: int
    """Of this process, pages that belong to no file: tensors, objects, stacks; and what no look saw to be else."""
    shared: int
    """Shared memory of this process, at the look that found most."""
    kernel: int
    """What the kernel keeps for this process: page tables and a stack for each of its threads."""
    children: int
    """What the children held together at their highest, beyond what they share with this process."""
    file: int
    """Pages of mapped files in this process, at the look that found most of the rest. Not in `bytes`: the kernel can
    take them back."""
    group_kernel: int | None
    """What the kernel charged to the whole memory group of this process for itself at the end, caches that it can take
    back included; None where it does not tell. Not in `bytes`."""
    cuda: tuple[CudaPeak, ...]
    """The peaks of torch's allocator on each GPU that was used. Not in `bytes`."""

    @property
    def growth(self) -> int:
        """How far the block raised the peak above what was held when it began."""
        return max(0, self.bytes - self.start)

    def __getattr__(self, name: str) -> Never:
        # Called only for what is not there.
        if name in Peak.__annotations__:
            raise LowtideError(
                what=f"the peak's `{name}` was read before its block ended",
                why="the peak may still rise, so a figure now would be too low",
                fix="read it after the `with` block; lowtide.memory.held() tells what is held now",
            )
        raise AttributeError(name)

    def __repr__(self) -> str:
        if "bytes" not in vars(self):
            return "Peak(the block has not ended)"
        about = "" if self.exact else "at most "
        gpus = "".join(f", GPU {gpu.device} {in_words(gpu.reserved)}" for gpu in self.cuda)
        return f"Peak({about}{in_words(self.bytes)}{gpus}; {self.method})"
