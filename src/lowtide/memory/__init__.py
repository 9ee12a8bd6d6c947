"""What memory this process may use, uses and has used, and how the allocator behaves. Loads no framework."""

from lowtide.memory.allocator import AllocatorReport, settle_allocator
from lowtide.memory.breakdown import Breakdown, Part, breakdown
from lowtide.memory.cores import Cores, cores
from lowtide.memory.cuda import CudaPeak
from lowtide.memory.growth import Growth, growth
from lowtide.memory.held import held
from lowtide.memory.high_water import reset_high_water
from lowtide.memory.limit import Limit, limit
from lowtide.memory.peak import Peak
from lowtide.memory.room import Room
from lowtide.memory.status import MemoryStatus, read_status
from lowtide.memory.watch import watch

__all__ = [
    "AllocatorReport",
    "Breakdown",
    "Cores",
    "CudaPeak",
    "Growth",
    "Limit",
    "MemoryStatus",
    "Part",
    "Peak",
    "Room",
    "breakdown",
    "cores",
    "growth",
    "held",
    "limit",
    "read_status",
    "reset_high_water",
    "settle_allocator",
    "watch",
]
