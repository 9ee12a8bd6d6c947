"""The public names of the part are there, and those that bring more than opening a store needs come when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lowtide.data


def test_every_public_name_can_be_had() -> None:
    for name in lowtide.data.__all__:
        assert getattr(lowtide.data, name).__name__ == name
    assert set(lowtide.data.__all__) <= set(dir(lowtide.data))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Stores'"):
        _ = lowtide.data.Stores


@pytest.mark.parametrize("statement", ["import lowtide.data", "from lowtide.data import Loader, Windows, Batch"])
def test_no_framework_is_loaded_with_the_names(statement: str) -> None:
    program = (
        f"{statement}\nimport sys\nprint(sorted({{'torch', 'tensorflow', 'duckdb', 'sklearn'}} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
