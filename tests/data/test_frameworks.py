"""Arrays of either framework are filled through NumPy, and a framework that is not there is named."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from lowtide.data.frameworks import Arrays, NumPyArrays, TorchArrays, arrays_of, load
from lowtide.errors import LowtideError, MissingExtraError

ARRAYS: dict[str, Arrays] = {"numpy": NumPyArrays(), "torch": TorchArrays(torch)}


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_what_is_written_through_numpy_is_in_the_array(framework: str, dtype: str) -> None:
    array, out = ARRAYS[framework].empty((2, 3), dtype)
    out[...] = [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(np.asarray(array), [[1, 2, 3], [4, 5, 6]])
    assert str(array.dtype).removeprefix("torch.") == dtype


def test_bfloat16_is_written_as_its_bits() -> None:
    tensor, out = TorchArrays(torch).empty((2,), "bfloat16")
    out[...] = [0x3F80, 0xC000]
    assert tensor.tolist() == [1.0, -2.0]
    assert tensor.dtype == torch.bfloat16


def test_numpy_has_no_bfloat16_and_pins_nothing() -> None:
    TorchArrays(torch).check_type("bfloat16")
    with pytest.raises(LowtideError, match="'bfloat16'"):
        NumPyArrays().check_type("bfloat16")
    with pytest.raises(LowtideError, match="'float8'"):
        TorchArrays(torch).check_type("float8")
    with pytest.raises(LowtideError, match="pin_memory"):
        arrays_of("numpy", pin_memory=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="pinned memory is to be had")
def test_memory_that_cannot_be_pinned_is_refused_beforehand() -> None:
    with pytest.raises(LowtideError, match="pin_memory=True, and torch refuses"):
        arrays_of("torch", pin_memory=True)


def test_a_framework_that_is_not_installed_is_named_with_what_installs_it() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"  # makes `import torch` fail as if it were not installed
        "from lowtide.data.frameworks import arrays_of\n"
        "try:\n    arrays_of('torch', pin_memory=False)\n"
        "except ImportError as error:\n    print(type(error).__name__, error.fix)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == 'MissingExtraError pip install "lowtide[torch]"'


def test_an_import_that_fails_inside_a_framework_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> object:
        raise ModuleNotFoundError("No module named 'inner'", name="inner")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="inner") as raised:
        load("torch", wanted_by="a test")
    assert not isinstance(raised.value, MissingExtraError)
