"""Settings for the tests of data: thousands of small files are written, and none has to outlive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_synced() -> Iterator[None]:
    """A file that is synced takes as long as the slowest disk; that all are is shown where it matters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
