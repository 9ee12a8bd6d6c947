"""Every test of planning keeps its plans in a folder of its own, and draws the same numbers whenever it runs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LOWTIDE_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator, which data may draw from
