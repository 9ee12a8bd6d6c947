"""Every test of streaming draws the same numbers whenever and beside whatever it runs."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
