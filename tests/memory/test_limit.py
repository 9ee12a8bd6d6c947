"""The limit is the tightest of all that hold, less what others use, and says where it comes from."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import psutil  # noqa: F401 - must be loaded while the system has its true name
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.errors import UnsupportedError
from lowtide.memory import Limit, limit
from lowtide.memory.limit import host_limit
from lowtide.memory.status import KERNEL_STACK
from tests.memory.machine import NO_LIMIT, MadeUpMachine, make_group, meminfo
from tests.memory.pages import MIB

HELD = 512 * MIB + KERNEL_STACK
"""What the made-up process holds."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="made-up machines need symbolic links")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpMachine:
    monkeypatch.setattr(sys, "platform", "linux")
    return MadeUpMachine(tmp_path)


def found(machine: MadeUpMachine) -> Limit:
    return host_limit(proc=machine.proc)


def test_without_any_limit_it_is_what_the_machine_has_left_and_what_is_held(machine: MadeUpMachine) -> None:
    limit = found(machine)
    assert limit.bytes == 12288 * MIB + HELD
    assert limit.source == "physical memory, 12.0 GiB of 16.0 GiB available"
    assert limit.counts == "resident memory"
    assert limit.left == 12288 * MIB
    assert str(limit) == f"12.5 GiB of resident memory (512 MiB held): {limit.source}"


def test_swap_is_no_budget(machine: MadeUpMachine) -> None:
    (machine.proc / "meminfo").write_text(meminfo(total=1024, available=100))
    assert found(machine).left == 100 * MIB


# ---- version 2 -------------------------------------------------------------------------------------------------------


def test_version_2_tightest_ancestor_counts(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup2", "cgroup")
    make_group(root / "a", memory__max=2048 * MIB, memory__current=HELD, memory__stat="anon 0")
    make_group(root / "a/b", memory__max="max", memory__high="max", memory__current=HELD, memory__stat="anon 0")
    make_group(root / "a/b/c", memory__max=3072 * MIB, memory__current=HELD, memory__stat="anon 0")
    machine.join("0::/a/b/c")
    limit = found(machine)
    assert limit.bytes == 2048 * MIB
    assert f"memory.max of {root / 'a'} (cgroup v2): 2.00 GiB" in limit.source
    assert [room.total for room in limit.rooms] == [2048 * MIB, 3072 * MIB, 16384 * MIB]


def test_version_2_what_throttles_counts_as_what_kills(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup2", "cgroup")
    make_group(root / "a", memory__max=2048 * MIB, memory__high=1536 * MIB, memory__current=HELD)
    machine.join("0::/a")
    assert found(machine).bytes == 1536 * MIB
    assert "memory.high" in found(machine).source
    assert "slows" in found(machine).source


def test_version_2_others_are_taken_off_and_what_can_be_reclaimed_is_not(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup2", "cgroup")
    statistics = f"anon {712 * MIB}\nactive_file {90 * MIB}\ninactive_file {200 * MIB}\nslab_reclaimable {10 * MIB}"
    current = HELD + 200 * MIB + 300 * MIB  # others hold 200
    make_group(root / "a", memory__max=2048 * MIB, memory__current=current, memory__stat=statistics)
    machine.join("0::/a")
    assert found(machine).bytes == (2048 - 200) * MIB
    assert "others in the group hold 200 MiB" in found(machine).source


def test_over_the_limit_there_is_nothing_left(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup2", "cgroup")
    make_group(root / "a", memory__max=256 * MIB, memory__current=HELD + 1024 * MIB)
    machine.join("0::/a")
    assert found(machine).bytes == 0
    assert found(machine).left < 0


# ---- version 1 -------------------------------------------------------------------------------------------------------


def test_version_1_tightest_ancestor_counts_and_the_largest_number_means_none(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup", "cgroup/memory", options="rw,memory")
    make_group(root, memory__limit_in_bytes=NO_LIMIT)
    make_group(root / "a", memory__limit_in_bytes=1024 * MIB, memory__usage_in_bytes=HELD)
    make_group(root / "a/b", memory__limit_in_bytes=NO_LIMIT, memory__usage_in_bytes=HELD)
    machine.join("3:cpu,cpuacct:/elsewhere")
    machine.join("4:memory:/a/b")
    limit = found(machine)
    assert limit.bytes == 1024 * MIB
    assert f"memory.limit_in_bytes of {root / 'a'} (cgroup v1): 1.00 GiB" in limit.source
    assert len(limit.rooms) == 2


def test_version_1_page_cache_is_not_what_others_hold(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup", "cgroup/memory", options="rw,memory")
    statistics = f"inactive_file 0\ntotal_inactive_file {300 * MIB}\ntotal_active_file {100 * MIB}"
    usage = HELD + 400 * MIB + 50 * MIB
    files = {"memory__limit_in_bytes": 1024 * MIB, "memory__usage_in_bytes": usage, "memory__stat": statistics}
    make_group(root / "a", **files)
    machine.join("4:memory:/a")
    assert found(machine).bytes == (1024 - 50) * MIB


@pytest.mark.parametrize("mounted", ["/docker/abc", "/"])
def test_version_1_limit_of_an_ancestor_out_of_sight_is_found(machine: MadeUpMachine, mounted: str) -> None:
    root = machine.mount("cgroup", "cgroup/memory", root=mounted, options="rw,memory")
    statistics = f"hierarchical_memory_limit {768 * MIB}"
    make_group(root, memory__limit_in_bytes=NO_LIMIT, memory__usage_in_bytes=HELD, memory__stat=statistics)
    machine.join("4:memory:/docker/abc")
    assert found(machine).bytes == 768 * MIB
    assert "out of sight" in found(machine).source


def test_version_1_ancestor_that_does_not_charge_for_its_children_does_not_count(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup", "cgroup/memory", options="rw,memory")
    make_group(root / "a", memory__limit_in_bytes=600 * MIB, memory__usage_in_bytes=0, memory__use_hierarchy=0)
    make_group(root / "a/b", memory__limit_in_bytes=900 * MIB, memory__usage_in_bytes=HELD, memory__use_hierarchy=0)
    machine.join("4:memory:/a/b")
    assert found(machine).bytes == 900 * MIB


# ---- containers ------------------------------------------------------------------------------------------------------


def test_hybrid_both_versions_count_and_the_one_without_the_controller_says_nothing(machine: MadeUpMachine) -> None:
    old = machine.mount("cgroup", "cgroup/memory", options="rw,memory")
    new = machine.mount("cgroup2", "cgroup/unified")
    make_group(old / "a", memory__limit_in_bytes=1024 * MIB, memory__usage_in_bytes=HELD)
    make_group(new / "b", cgroup__controllers="hugetlb")
    machine.join("4:memory:/a")
    machine.join("0::/b")
    assert found(machine).bytes == 1024 * MIB
    make_group(new / "b", memory__max=800 * MIB, memory__current=HELD)
    assert found(machine).bytes == 800 * MIB


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/", "/"),  # a namespace of its own
        ("/docker/abc", "/docker/abc"),  # the host's path, and its part of the hierarchy mounted
        ("/", "/docker/abc"),  # the host's path, which is not there below what is mounted
        ("/docker/abc", "/"),  # the other way round
        ("/", "/../abc"),  # in a group outside of its namespace
    ],
)
def test_a_container_finds_its_own_limit_however_its_group_is_named(
    machine: MadeUpMachine, root: str, path: str
) -> None:
    point = machine.mount("cgroup2", "cgroup", root=root)
    make_group(point, memory__max=1024 * MIB, memory__current=HELD)
    make_group(point.parent / "abc", memory__max=1 * MIB, memory__current=HELD)  # somebody else's
    machine.join(f"0::{path}")
    assert found(machine).bytes == 1024 * MIB


def test_a_mount_at_a_place_with_a_blank_in_its_name_is_found(machine: MadeUpMachine) -> None:
    point = machine.mount("cgroup2", "control groups")
    make_group(point / "a", memory__max=1024 * MIB, memory__current=HELD)
    machine.join("0::/a")
    assert found(machine).bytes == 1024 * MIB


# ---- the process -----------------------------------------------------------------------------------------------------


def test_limits_on_address_space_leave_what_is_not_taken_of_it(machine: MadeUpMachine) -> None:
    machine.set_limits(address_space=str(5000 * MIB))
    limit = found(machine)
    assert limit.left == 1000 * MIB  # 4000 are mapped, however little of it is resident
    assert limit.counts == "address space"
    assert limit.source == "RLIMIT_AS: 4.88 GiB of address space, 3.91 GiB taken, touched or not"
    machine.set_limits(address_space=str(5000 * MIB), data=str(1100 * MIB))
    assert found(machine).left == 200 * MIB
    assert "RLIMIT_DATA" in found(machine).source


limits = st.integers(1, 20_000).map(lambda size: size * MIB) | st.none()


@given(version_2=limits, version_1=limits, address_space=limits, available=st.integers(1, 20_000))
def test_the_tightest_of_all_counts(
    tmp_path_factory: pytest.TempPathFactory,
    version_2: int | None,
    version_1: int | None,
    address_space: int | None,
    available: int,
) -> None:
    machine = MadeUpMachine(tmp_path_factory.mktemp("machine"))
    old = machine.mount("cgroup", "memory", options="rw,memory")
    new = machine.mount("cgroup2", "unified")
    make_group(old / "a", memory__limit_in_bytes=version_1 or NO_LIMIT, memory__usage_in_bytes=HELD)
    make_group(new / "b", memory__max=version_2 or "max", memory__current=HELD)
    machine.join("4:memory:/a")
    machine.join("0::/b")
    machine.set_limits(address_space=str(address_space or "unlimited"))
    (machine.proc / "meminfo").write_text(meminfo(total=32_000, available=available))
    groups = [size - HELD for size in (version_1, version_2) if size is not None]
    addresses = [] if address_space is None else [address_space - 4000 * MIB]
    left = min([*groups, *addresses, available * MIB])
    assert host_limit(proc=machine.proc).bytes == max(0, HELD + left)


# ---- this machine ----------------------------------------------------------------------------------------------------


def test_here_there_is_a_limit_above_what_is_held() -> None:
    here = lowtide.memory.limit()
    assert here.bytes > here.held > 0
    assert here == pickle.loads(pickle.dumps(here))  # noqa: S301 - made here
    assert limit("cpu").counts in {"resident memory", "address space"}


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_it_is_the_machines_memory(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert limit().source.startswith("physical memory")


def test_a_device_without_a_known_limit_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="mps"):
        limit("mps")


@pytest.mark.parametrize(
    ("fraction", "left"),
    [
        (1.0, 3072 - 256),  # what is free, less the reserve
        (0.25, 2048 - 1024),  # what this process was allowed of 8 GiB, less what it has
    ],
)
def test_of_a_gpu_the_tighter_of_what_is_free_and_what_is_allowed_counts(
    monkeypatch: pytest.MonkeyPatch, fraction: float, left: int
) -> None:
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "mem_get_info", lambda _device: (3072 * MIB, 8192 * MIB))
    monkeypatch.setattr(cuda, "memory_reserved", lambda _device: 1024 * MIB)
    monkeypatch.setattr(cuda, "get_per_process_memory_fraction", lambda _device: fraction)
    monkeypatch.setattr(cuda, "get_device_name", lambda device: f"a GPU called {device}")
    found = limit("cuda:0")
    assert (found.left, found.held, found.bytes) == (left * MIB, 1024 * MIB, (left + 1024) * MIB)
    assert found.source.startswith("a GPU called cuda:0: 3.00 GiB of 8.00 GiB free")


def test_a_gpu_allows_what_is_free_and_what_the_allocator_has_less_a_reserve() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU here")
    held = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    before = limit("cuda")
    del held
    after = limit(0)
    assert before.counts == "GPU memory"
    assert before.held >= 512 * MIB
    assert abs(before.bytes - after.bytes) <= 64 * MIB
    assert before.bytes < torch.cuda.mem_get_info()[1]
