"""Finds out what a measurement runs on. Runs inside a measuring child."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import torch

import lowtide
import lowtide.nn  # brings the kernels onto torch's threads, as in training
from benchmarks.report import Machine
from lowtide import kernels

_PRODUCT_SIZE = 2048
_PRODUCT_REPEATS = 5


def describe_machine() -> Machine:
    """Look at this machine, and multiply two matrices on it."""
    load, _, _ = os.getloadavg()
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        threads=torch.get_num_threads(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        lowtide=lowtide.__version__,
        isa=kernels.isa(),
        team=kernels.team_source(),
        load=load,
        product_gflops=_product_gflops(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _product_gflops() -> float:
    left, right = torch.randn(2, _PRODUCT_SIZE, _PRODUCT_SIZE).unbind()
    torch.mm(left, right)
    seconds = []
    for _ in range(_PRODUCT_REPEATS):
        start = time.perf_counter()
        torch.mm(left, right)
        seconds.append(time.perf_counter() - start)
    return 2 * _PRODUCT_SIZE**3 / min(seconds) / 1e9
