"""NumPy's whole numbers become Python's, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from lowtide.data.loading.numbers import make_plain, plain


@dataclass(frozen=True)
class Asked:
    """What somebody asked for."""

    steps: int
    rate: object = None


def test_whole_numbers_of_numpy_become_pythons() -> None:
    assert type(plain(np.int64(3))) is int
    assert plain(np.uint8(3)) == 3


@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float32(2), "3", None])
def test_anything_else_stays_as_it_is(value: object) -> None:
    assert plain(value) is value


def test_attributes_that_are_named_become_plain() -> None:
    asked = Asked(np.int64(3), np.int64(4))  # type: ignore[arg-type]  # as a user might
    make_plain(asked, "steps")
    assert type(asked.steps) is int
    assert type(asked.rate) is np.int64
