"""sigmoid and tanh keep the bounds that activations.hpp states, on every instruction set, over the whole range.

float32 is compared with NumPy's float64, float64 with long double. The unit is the last place of the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from lowtide import kernels

Function = Literal["sigmoid", "tanh"]
FUNCTIONS: tuple[Function, ...] = ("sigmoid", "tanh")
DTYPES: tuple[type[np.floating[Any]], ...] = (np.float32, np.float64)
BOUND = 4
FLOAT32_STRIDE = 2017
"""Every so many-th of the 2^32 floats: a prime, so that all low bits occur."""

every_isa = pytest.mark.parametrize("isa", kernels.usable_isas())
every_function = pytest.mark.parametrize("function", FUNCTIONS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def activate(function: Function, x: NDArray[Any], isa: str) -> NDArray[Any]:
    """Apply a kernel to a contiguous array."""
    y = np.full_like(x, -5)
    kernels.activate(function, x.dtype == np.float64, x.ctypes.data, y.ctypes.data, x.size, isa)
    return y


def exact_sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    """One over one plus exp(-x), written so that nothing overflows."""
    decay = np.exp(-np.abs(x))
    exact: NDArray[Any] = np.where(x < 0, decay, 1) / (1 + decay)
    return exact


def exact_tanh(x: NDArray[Any]) -> NDArray[Any]:
    """Through expm1, which loses nothing near zero; saturated long before 100."""
    doubled = np.expm1(2 * np.clip(x, -100, 100))
    exact: NDArray[Any] = doubled / (doubled + 2)
    return exact


EXACT: dict[Function, Callable[[NDArray[Any]], NDArray[Any]]] = {"sigmoid": exact_sigmoid, "tanh": exact_tanh}


def float32_range() -> NDArray[np.float32]:
    """Floats from everywhere, neither infinite nor NaN."""
    x: NDArray[np.float32] = np.arange(0, 2**32, FLOAT32_STRIDE, dtype=np.int64).astype(np.uint32).view(np.float32)
    return x[np.isfinite(x)]


def float64_range() -> NDArray[np.float64]:
    """Doubles of every exponent, and more of those where the functions bend."""
    random = np.random.default_rng(0)
    everywhere = random.integers(0, 2**64, 200_000, np.uint64).view(np.float64)
    parts = [random.uniform(-reach, reach, 100_000) for reach in (1e-3, 1, 25, 750)]
    x: NDArray[np.float64] = np.concatenate([everywhere, *parts])
    return x[np.isfinite(x)]


def assert_within_bound(function: Function, x: NDArray[Any], y: NDArray[Any], exact: NDArray[Any]) -> None:
    """Check values that are normal numbers by their last place; smaller ones must come out that small."""
    tiny = np.finfo(x.dtype).tiny
    normal = np.ones(x.shape, bool) if function == "tanh" else exact >= tiny
    unit = np.spacing(np.abs(exact).astype(x.dtype)).astype(exact.dtype)
    off = np.abs(y.astype(exact.dtype) - exact) / unit
    worst = np.argmax(np.where(normal, off, 0))
    assert off[worst] <= BOUND, f"{function}({x[worst]!r}) = {y[worst]!r}: {off[worst]:.2f} units in the last place"
    assert ((y[~normal] >= 0) & (y[~normal] <= 2 * tiny)).all()


@every_isa
@every_function
def test_float32_keeps_the_stated_bound(function: Function, isa: str) -> None:
    x = float32_range()
    assert_within_bound(function, x, activate(function, x, isa), EXACT[function](x.astype(np.float64)))


@every_isa
@every_function
@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is no wider than double here")
def test_float64_keeps_the_stated_bound(function: Function, isa: str) -> None:
    x = float64_range()
    assert_within_bound(function, x, activate(function, x, isa), EXACT[function](x.astype(np.longdouble)))


@every_isa
@every_dtype
@every_function
def test_nan_stays_nan_and_infinities_give_exact_limits(
    function: Function, dtype: type[np.floating[Any]], isa: str
) -> None:
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.5] * 7, dtype)
    y = activate(function, x, isa).reshape(7, 5)
    assert np.isnan(y[:, :2]).all()
    assert (y[:, 2] == 1).all()
    assert (y[:, 3] == (0 if function == "sigmoid" else -1)).all()
    assert np.isfinite(y[:, 4]).all()


@every_isa
@every_dtype
def test_tanh_keeps_the_sign_of_zero(dtype: type[np.floating[Any]], isa: str) -> None:
    x = np.array([0.0, -0.0] * 9, dtype)
    y = activate("tanh", x, isa)
    assert (y == 0).all()
    assert np.array_equal(np.signbit(y), np.signbit(x))


@every_isa
@every_dtype
@every_function
def test_a_value_does_not_depend_on_its_place(function: Function, dtype: type[np.floating[Any]], isa: str) -> None:
    x = np.linspace(-9, 9, 40).astype(dtype)
    whole = activate(function, x, isa)
    for start in range(3):
        for stop in range(start, x.size + 1):
            assert np.array_equal(activate(function, x[start:stop].copy(), isa), whole[start:stop])


@every_isa
@every_dtype
def test_a_count_is_kept(dtype: type[np.floating[Any]], isa: str) -> None:
    x, y = np.ones(40, dtype), np.full(40, -5, dtype)
    for count in range(40):
        kernels.activate("tanh", dtype is np.float64, x.ctypes.data, y.ctypes.data, count, isa)
        assert (y[count:] == -5).all()
        assert (y[:count] != -5).all()
