"""`limit`: how much memory this process tree may hold here, and where that comes from.

Several limits hold at once: of the control groups around this process, of the process itself, of the machine. Each
leaves some room above what the tree holds now, and the tightest counts. Swap is never budget: training that swaps does
not go forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lowtide.memory.cuda_room import cuda_room
from lowtide.memory.held import held
from lowtide.memory.host_rooms import host_rooms
from lowtide.memory.room import Counted, Room
from lowtide.memory.sizes import in_words
from lowtide.memory.status import PROC

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Limit:
    """How much memory may be held, what is held now included."""

    bytes: int
    """What this process and its children may hold in all: to be compared with `watch`'s `peak.bytes`; of a GPU, what
    torch's allocator may reserve."""
    source: str
    """The limit that is the tightest, in words."""
    counts: Counted
    """What that limit counts. A limit on address space binds on what is mapped, touched or not."""
    held: int
    """What was held when this was found out."""
    rooms: tuple[Room, ...] = field(repr=False)
    """All limits that hold here, the tightest first."""

    @property
    def left(self) -> int:
        """What may be taken above what was held."""
        return self.bytes - self.held

    def __str__(self) -> str:
        return f"{in_words(self.bytes)} of {self.counts} ({in_words(self.held)} held): {self.source}"


def limit(device: torch.device | str | int | None = None) -> Limit:
    """Find out how much memory this process tree may hold.

    Main memory: the tightest of the limits of control groups (versions 1 and 2, all ancestors in sight), RLIMIT_AS,
    RLIMIT_DATA, and physical memory, each less what others use. A GPU: what is free and what torch's allocator has,
    less a reserve for the driver.

    Args:
        device: A GPU as torch names it, "cuda:1" or 1; None or "cpu" for main memory.

    Raises:
        UnsupportedError: There is no such GPU.
    """
    if device is None or str(device) == "cpu":
        return host_limit()
    import torch  # noqa: PLC0415 - this part loads no framework by itself

    reserved, room = cuda_room(torch.device(device))
    return _tightest(reserved, [room])


def host_limit(*, proc: Path = PROC) -> Limit:
    """The limit of main memory, as a proc file system tells it."""
    now = held(proc=proc)
    return _tightest(now, host_rooms(now, proc=proc))


def _tightest(now: int, rooms: list[Room]) -> Limit:
    ordered = tuple(sorted(rooms, key=lambda room: room.left))
    first = ordered[0]
    return Limit(max(0, now + first.left), first.source, first.counts, now, ordered)
