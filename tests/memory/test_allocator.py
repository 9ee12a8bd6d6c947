"""The allocator is settled where it can be, left alone where it cannot, and the report says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lowtide.errors import LowtideError
from lowtide.memory import AllocatorReport, settle_allocator

glibc = pytest.mark.skipif(
    sys.platform != "linux" or "GNU" not in str(os.confstr_names), reason="only glibc's malloc has an mmap threshold"
)

# A block of 1 MiB after one of 8 MiB was freed: by then a moving threshold has risen above it, and the heap serves it.
PROGRAM = """
import ctypes, json, os, sys
from lowtide.memory import settle_allocator

report = settle_allocator({arguments}) if {settle} else None

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallinfo2.restype = Info
libc.free(libc.malloc(8 << 20))
before = libc.mallinfo2().hblkhd
block = libc.malloc(1 << 20)
print(json.dumps({{
    "mapped": libc.mallinfo2().hblkhd - before,
    "threshold": report and report.mmap_threshold,
    "huge_pages": report and report.huge_pages,
    "notes": report and report.notes,
    "variable": os.environ.get("THP_MEM_ALLOC_ENABLE"),
}}))
"""


def in_child(*, settle: bool = True, arguments: str = "", before: str = "", **environment: str) -> dict[str, object]:
    """Run the program above in a process of its own: a threshold once fixed stays."""
    inherited = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    program = before + PROGRAM.format(settle=settle, arguments=arguments)
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    values: dict[str, object] = json.loads(result.stdout)
    return values


@glibc
def test_large_blocks_come_from_the_kernel_once_settled_and_not_before() -> None:
    assert in_child(settle=False)["mapped"] == 0
    settled = in_child()
    assert settled["threshold"] == 64 * 1024
    assert isinstance(settled["mapped"], int)
    assert settled["mapped"] >= 1 << 20


@glibc
def test_the_threshold_can_be_chosen() -> None:
    settled = in_child(arguments="mmap_threshold=4 << 20")
    assert settled["threshold"] == 4 << 20
    assert settled["mapped"] == 0


def test_the_setting_switches_everything_off() -> None:
    left_alone = in_child(LOWTIDE_ALLOCATOR="off")
    assert left_alone["mapped"] == 0
    assert left_alone["threshold"] is None
    assert left_alone["huge_pages"] is False
    assert left_alone["variable"] is None
    assert left_alone["notes"] == ["LOWTIDE_ALLOCATOR=off"]


def test_huge_pages_are_asked_for_through_torchs_variable_or_the_reason_is_given() -> None:
    settled = in_child()
    if settled["huge_pages"]:
        assert settled["variable"] == "1"
    else:
        assert settled["variable"] is None
        assert settled["notes"]


def test_huge_pages_can_be_declined() -> None:
    settled = in_child(arguments="huge_pages=False")
    assert settled["huge_pages"] is False
    assert settled["variable"] is None


def test_after_torch_was_loaded_huge_pages_are_not_claimed() -> None:
    settled = in_child(before="import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n")
    assert settled["huge_pages"] is False
    assert settled["variable"] is None


@pytest.mark.parametrize("size", [0, -1, (32 << 20) + 1])
def test_a_threshold_that_malloc_would_refuse_is_refused_before(size: int) -> None:
    with pytest.raises(LowtideError, match="mmap_threshold"):
        settle_allocator(mmap_threshold=size)


def test_a_misspelt_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_ALLOCATOR", "of")
    with pytest.raises(LowtideError, match="'of'"):
        settle_allocator()


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_nothing_happens_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    report = settle_allocator()
    assert report == AllocatorReport(None, huge_pages=False, notes=report.notes)
    assert all(system in note for note in report.notes)
    assert len(report.notes) == 2


@glibc
def test_a_c_library_other_than_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise OSError(22, f"{name}: Invalid argument")

    monkeypatch.setattr(os, "confstr", unknown)
    report = settle_allocator(huge_pages=False)
    assert report.mmap_threshold is None
    assert "not glibc" in report.notes[0]
