"""Threads that can run at once are those that the affinity and the groups' quotas allow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lowtide.memory import cores
from tests.memory.machine import MadeUpMachine, make_group

ALLOWED = set(range(8))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpMachine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: ALLOWED, raising=False)
    return MadeUpMachine(tmp_path)


def test_without_a_quota_all_cores_of_the_affinity_count(machine: MadeUpMachine) -> None:
    found = cores(proc=machine.proc)
    assert (found.count, found.quota) == (8, None)
    assert "affinity" in str(found)


def test_a_kernel_without_control_groups_has_no_quota(machine: MadeUpMachine) -> None:
    (machine.proc / "self" / "cgroup").unlink()
    assert cores(proc=machine.proc).count == 8


@pytest.mark.parametrize(
    ("quota", "count"), [("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("max 100000", 8)]
)
def test_version_2_quota_is_rounded_up(machine: MadeUpMachine, quota: str, count: int) -> None:
    root = machine.mount("cgroup2", "cgroup")
    make_group(root / "a", cpu__max=quota)
    machine.join("0::/a")
    assert cores(proc=machine.proc).count == count


def test_version_1_tightest_quota_of_all_ancestors_counts(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup", "cgroup/cpu,cpuacct", options="rw,cpu,cpuacct")
    make_group(root / "a", cpu__cfs_quota_us=300000, cpu__cfs_period_us=100000)
    make_group(root / "a/b", cpu__cfs_quota_us=500000, cpu__cfs_period_us=100000)
    make_group(root / "a/b/c", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    machine.join("2:cpu,cpuacct:/a/b/c")
    found = cores(proc=machine.proc)
    assert (found.count, found.quota) == (3, 3.0)
    assert str(root / "a") in found.source


def test_a_quota_above_the_affinity_does_not_raise_the_count(machine: MadeUpMachine) -> None:
    root = machine.mount("cgroup2", "cgroup")
    make_group(root, cpu__max="1600000 100000")
    machine.join("0::/")
    assert cores(proc=machine.proc).count == 8


def test_here_there_is_at_least_one() -> None:
    assert 1 <= cores().count <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_here_the_affinity_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})
    assert cores().count == 1
