"""A watch finds the highest that this process and its children rose in a block, whatever else is being watched."""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil  # noqa: F401 - must be loaded while the system has its true name
import pytest

from lowtide.errors import LowtideError
from lowtide.memory import children as children_module
from lowtide.memory import growth, high_water, read_status, watch
from lowtide.memory.children import Children
from lowtide.memory.descendants import program
from lowtide.memory.high_water import MARK
from tests.memory.pages import MIB, SLACK, Holder, touch

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be set back")
INTERPRETER = 12 * MIB
"""What a bare child holds beside what it is told to."""


@linux
def test_the_peak_is_what_was_held_at_the_highest_though_it_was_given_back() -> None:
    with watch() as peak:
        touch(96 * MIB).close()
        touch(16 * MIB).close()
    assert abs(peak.growth - 96 * MIB) <= SLACK
    assert peak.exact
    assert peak.method == "the kernel's high-water mark"
    assert peak.at_least <= peak.bytes


@linux
def test_an_earlier_and_higher_peak_does_not_count() -> None:
    touch(128 * MIB).close()
    with watch() as peak:
        touch(24 * MIB).close()
    assert abs(peak.growth - 24 * MIB) <= SLACK


@linux
def test_the_parts_add_up_and_shared_memory_has_its_own() -> None:
    with watch() as peak:
        shared = touch(40 * MIB, shared=True)
        private = touch(24 * MIB)
    shared.close()
    private.close()
    assert peak.anonymous + peak.shared + peak.kernel + peak.children == peak.bytes
    assert abs(peak.shared - 40 * MIB) <= SLACK
    assert peak.anonymous >= 24 * MIB
    assert peak.kernel > 0


@linux
def test_a_watch_around_another_keeps_the_peak_from_before_it_and_from_within() -> None:
    with watch() as before:
        touch(80 * MIB).close()
        with watch() as inner:
            touch(16 * MIB).close()
    with watch() as within, watch() as innermost:
        touch(48 * MIB).close()
    assert abs(before.growth - 80 * MIB) <= SLACK
    assert abs(inner.growth - 16 * MIB) <= SLACK
    assert abs(within.growth - 48 * MIB) <= SLACK
    assert abs(innermost.growth - 48 * MIB) <= SLACK


@linux
def test_watches_that_overlap_without_nesting_are_right() -> None:
    with ExitStack() as first, ExitStack() as second:
        one = first.enter_context(watch())
        touch(64 * MIB).close()
        other = second.enter_context(watch())
        touch(32 * MIB).close()
        first.close()
        touch(96 * MIB).close()
        second.close()
    assert abs(one.growth - 64 * MIB) <= SLACK
    assert abs(other.growth - 96 * MIB) <= SLACK


@linux
def test_threads_may_watch_at_the_same_time() -> None:
    opened = threading.Barrier(2)
    peaks = []

    def work() -> None:
        with watch() as peak:
            opened.wait()
            touch(32 * MIB).close()
            opened.wait()
        peaks.append(peak)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [peak.exact for peak in peaks] == [True, True]
    assert all(28 * MIB <= peak.growth <= 68 * MIB for peak in peaks)  # one after the other, or both at once


@linux
def test_growth_inside_of_a_watch_does_not_disturb_it() -> None:
    with watch() as peak:
        touch(64 * MIB).close()
        with growth() as grown:
            touch(8 * MIB).close()
    assert abs(peak.growth - 64 * MIB) <= SLACK
    assert abs(grown.bytes - 8 * MIB) <= SLACK


def test_the_figures_are_there_when_the_block_raises() -> None:
    peaks = []

    def fail() -> None:
        with watch() as peak:
            peaks.append(peak)
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert peaks[0].bytes > 0


def test_no_figure_can_be_read_before_the_block_ends() -> None:
    with watch() as peak:
        for name in ("bytes", "exact", "cuda", "growth"):
            with pytest.raises(LowtideError, match="before its block ended"):
                getattr(peak, name)
        assert repr(peak) == "Peak(the block has not ended)"
        assert not hasattr(peak, "bites")
    assert "MiB" in repr(peak)


# ---- mapped files ----------------------------------------------------------------------------------------------------


def read_pages(view: mmap.mmap, first: int, last: int) -> None:
    """Make a part of a mapped file resident."""
    assert sum(view[offset] for offset in range(first, last, mmap.PAGESIZE)) == (last - first) // mmap.PAGESIZE


@linux
def test_a_mapped_file_does_not_count_while_it_comes_nor_when_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"\x01" * (64 * MIB))
    with watch() as peak, path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for part in range(0, 64, 2):
            read_pages(view, part * MIB, (part + 2) * MIB)
            MARK.look()  # as the watch's own thread does, at a time that the test knows
        touch(32 * MIB).close()
        MARK.look()
        view.close()
    assert abs(peak.growth - 32 * MIB) <= SLACK
    assert peak.file >= 64 * MIB


@linux
def test_where_a_file_was_mapped_unseen_the_peak_lies_between_two_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"\x01" * (48 * MIB))
    monkeypatch.setattr("lowtide.memory.sampler.SHORTEST_PAUSE", 3600.0)
    with watch() as peak, path.open("rb") as file:
        touch(16 * MIB).close()
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        read_pages(view, 0, 48 * MIB)
        MARK.look()
    view.close()
    assert not peak.exact
    assert "mapped files" in peak.method
    assert peak.at_least - peak.start <= 16 * MIB + SLACK
    assert peak.growth >= 48 * MIB - SLACK


# ---- children --------------------------------------------------------------------------------------------------------


@linux
def test_what_a_child_held_counts_though_it_gave_it_back() -> None:
    with watch() as peak:
        child = Holder()
        child.hold(80)
    child.end()
    assert 80 * MIB <= peak.children <= 80 * MIB + INTERPRETER
    assert peak.growth >= 80 * MIB
    assert "children by their own marks" in peak.method


@linux
def test_what_a_child_held_before_the_block_does_not_count() -> None:
    child = Holder()
    child.hold(80)
    with watch() as peak:
        pass
    child.end()
    assert peak.children <= INTERPRETER
    assert peak.exact


@linux
def test_a_child_that_measures_itself_does_not_lose_what_it_held_before() -> None:
    children = Children()
    child = Holder()
    children.look()
    child.hold(64)
    children.look()
    child.measure_itself()
    children.look()
    child.hold(8)
    children.look()
    child.end()
    assert 64 * MIB <= children.at_most <= 64 * MIB + INTERPRETER


@linux
def test_children_one_after_the_other_are_not_added_up_and_those_together_are() -> None:
    children = Children()
    for _ in range(3):
        child = Holder()
        children.look()
        child.hold(32)
        children.look()
        child.end()
        children.look()
    assert 32 * MIB <= children.at_most <= 32 * MIB + INTERPRETER
    together = [Holder() for _ in range(2)]
    children.look()
    for child in together:
        child.hold(32)
    children.look()
    assert 64 * MIB <= children.at_most <= 64 * MIB + 2 * INTERPRETER
    for child in together:
        child.end()


@linux
def test_between_vfork_and_exec_the_parents_memory_is_not_taken_for_the_childs(monkeypatch: pytest.MonkeyPatch) -> None:
    own = read_status()
    small = replace(own, anonymous=8 * MIB, file=0, shared=0, swapped=0, kernel=0, high_water=8 * MIB)
    looks = [{}, {}, {7: replace(own, anonymous=512 * MIB, high_water=600 * MIB)}, {7: small}]
    programs, shared = {7: program()}, {program(): 100 * MIB}
    monkeypatch.setattr(children_module, "_living", lambda: looks.pop(0))
    monkeypatch.setattr(
        children_module, "shared_with_others", lambda process, _status: shared.get(programs[process], 0)
    )
    monkeypatch.setattr(children_module, "program", lambda process="self": programs.get(process, program()))
    children = Children()
    children.look()
    assert children.at_most == children.now == 0
    programs[7] = ("another", "program")
    children.look()
    assert children.at_most == 8 * MIB
    assert children.now == 8 * MIB


FORKS = """
import json, mmap, os, sys
from lowtide.memory import watch, held

def touch(block, size):
    for offset in range(0, size << 20, mmap.PAGESIZE):
        block[offset] = 2

block = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
touch(block, 128)
written, end = os.pipe()
stay, go = os.pipe()
with watch() as peak:
    if os.fork() == 0:
        touch(block, {written})
        os.write(end, b"x")
        os.read(stay, 1)
        os._exit(0)
    os.read(written, 1)
    together = held()
os.write(go, b"x")
os.wait()
print(json.dumps([peak.children, peak.bytes, together]))
"""


@linux
@pytest.mark.parametrize("written", [0, 48])
def test_of_a_forked_child_only_what_it_does_not_share_counts(written: int) -> None:
    program = FORKS.replace("{written}", str(written))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    children, together, now = map(int, result.stdout.strip("[]\n").split(","))
    assert written * MIB <= children <= (written + 8) * MIB
    for figure in (together, now):
        assert (128 + written) * MIB <= figure <= (128 + written) * MIB + 3 * INTERPRETER


# ---- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_the_peak_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with watch() as peak:
        held = touch(48 * MIB)
    held.close()
    assert peak.growth >= 48 * MIB - SLACK
    assert not peak.exact
    assert "sampled" in peak.method
    assert system in peak.method


@linux
def test_where_the_mark_cannot_be_set_back_the_peak_is_sampled_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(high_water, "_CLEAR_REFS", tmp_path / "missing" / "clear_refs")
    with watch() as peak:
        pass
    assert not peak.exact
    assert "clear_refs" in peak.method
