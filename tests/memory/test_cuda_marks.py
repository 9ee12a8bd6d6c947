"""The peaks of torch's CUDA allocator belong to the block in which they were reached."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from lowtide.memory import CudaPeak, watch

MIB = 1 << 20


class Allocator:
    """Stands in for torch.cuda: one GPU, one mark each for what is allocated and what is reserved."""

    def __init__(self) -> None:
        """Start empty, and not yet in use."""
        self.now = self.highest = self.reserved = 0
        self.initialized = False

    def is_initialized(self) -> bool:
        """Whether anything was allocated ever."""
        return self.initialized

    def device_count(self) -> int:
        """One."""
        return 1

    def max_memory_allocated(self, _device: int) -> int:
        """Since the last reset."""
        return self.highest

    def max_memory_reserved(self, _device: int) -> int:
        """Twice what was allocated."""
        return 2 * self.highest

    def reset_peak_memory_stats(self, _device: int) -> None:
        """Set the mark back."""
        self.highest = self.now

    def take(self, size: int) -> None:
        """Allocate, or free where negative."""
        self.initialized = True
        self.now += size
        self.highest = max(self.highest, self.now)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))
    return made


def test_a_block_has_its_own_peak_and_the_one_around_it_keeps_what_came_before(allocator: Allocator) -> None:
    allocator.take(500 * MIB)
    allocator.take(-400 * MIB)
    with watch() as outer:
        allocator.take(300 * MIB)
        allocator.take(-300 * MIB)
        with watch() as inner:
            allocator.take(50 * MIB)
            allocator.take(-50 * MIB)
    assert outer.cuda == (CudaPeak(0, 400 * MIB, 800 * MIB),)
    assert inner.cuda == (CudaPeak(0, 150 * MIB, 300 * MIB),)


def test_a_gpu_that_is_first_used_inside_counts(allocator: Allocator) -> None:
    with watch() as peak:
        allocator.take(70 * MIB)
        allocator.take(-70 * MIB)
    assert [gpu.allocated for gpu in peak.cuda] == [70 * MIB]


def test_without_a_gpu_in_use_there_is_no_figure(allocator: Allocator) -> None:
    with watch() as peak:
        pass
    assert not allocator.initialized
    assert peak.cuda == ()


def test_on_a_real_gpu_the_peak_is_what_was_allocated() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    with watch() as outer:
        del held
        torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
        with watch() as inner:
            torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    assert outer.cuda[0].allocated == 64 * MIB
    assert inner.cuda[0].allocated == 16 * MIB
    assert inner.cuda[0].reserved >= 16 * MIB
