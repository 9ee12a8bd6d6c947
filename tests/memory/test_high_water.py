"""The one mark can be set back, and no block that is being measured loses by that."""

from __future__ import annotations

import sys

import pytest

from lowtide.memory import growth, read_status, reset_high_water
from tests.memory.pages import MIB, SLACK, touch

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a high-water mark that can be set back")


@linux
def test_resetting_brings_the_mark_down_to_what_is_resident() -> None:
    touch(64 * MIB).close()
    high = read_status().high_water
    reset_high_water()
    status = read_status()
    assert status.high_water <= high - 48 * MIB
    assert abs(status.high_water - (status.anonymous + status.file + status.shared)) <= SLACK


@linux
def test_resetting_inside_a_block_does_not_lose_its_peak() -> None:
    with growth() as measured:
        touch(48 * MIB).close()
        reset_high_water()
    assert abs(measured.bytes - 48 * MIB) <= SLACK
