"""What memory this process uses and has used, and how the allocator behaves. Loads no framework."""

from lowtide.memory.allocator import AllocatorReport, settle_allocator
from lowtide.memory.high_water import Growth, MemoryStatus, growth, read_status, reset_high_water

__all__ = [
    "AllocatorReport",
    "Growth",
    "MemoryStatus",
    "growth",
    "read_status",
    "reset_high_water",
    "settle_allocator",
]
