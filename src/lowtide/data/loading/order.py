"""Random orders that are pure functions of their key, the same on every machine, in the memory of what is asked for.

A permutation is a Feistel network over pairs of numbers (Black and Rogaway 2002, "Ciphers with arbitrary finite
domains"): any part of it can be computed by itself, so an epoch's order need not exist as a whole, and going to the
middle of an epoch costs no more than starting it. All is integer arithmetic on 64 bits. Round functions and hashes are
the finaliser of splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_ROUNDS = 6
_HALF = np.uint64(32)


def key_of(*parts: int) -> int:
    """One key of 64 bits from whole numbers: other parts, or another order of them, give another key."""
    key = 0
    for part in parts:
        key = _mixed((key ^ (part & _MASK)) + _GOLDEN & _MASK)
    return key


def hashes(key: int, numbers: Ints) -> Hashes:
    """A random-looking number of 64 bits for each number, a function of it and the key."""
    values = numbers.astype(np.uint64)
    values *= np.uint64(_GOLDEN)
    values += np.uint64(key)
    return _mix_in_place(values)


def below(limits: Ints, drawn: Hashes) -> Ints:
    """A number from 0 to below each limit (less than 2^32), picked by the upper half of what was drawn."""
    return ((drawn >> _HALF) * limits.astype(np.uint64) >> _HALF).astype(np.int64)


class Permutation:
    """An order of the numbers below `count`."""

    def __init__(self, count: int, key: int) -> None:
        """Choose the order that belongs to a key.

        Args:
            count: How many numbers there are, below 2^62.
            key: As `key_of` makes it.
        """
        assert 0 <= count < 1 << 62
        self.count = count
        self._rows = max(1, isqrt(max(0, count - 1)) + 1)
        self._columns = max(1, -(-count // self._rows))
        self._keys = [key_of(key, number) for number in range(_ROUNDS)]

    def __call__(self, places: Ints) -> Ints:
        """The numbers at these places of the order."""
        return self._walk(places, self._forward)

    def places_of(self, numbers: Ints) -> Ints:
        """Where in the order these numbers are."""
        return self._walk(numbers, self._backward)

    def _walk(self, values: Ints, step: Callable[[Ints], Ints]) -> Ints:
        """Step on from values that lie between `count` and the network's own size, until none does."""
        assert values.size == 0 or (values.min() >= 0 and values.max() < self.count)
        found = step(values)
        outside = np.flatnonzero(found >= self.count)
        while outside.size:
            found[outside] = step(found[outside])
            outside = outside[found[outside] >= self.count]
        return found

    def _forward(self, values: Ints) -> Ints:
        row, column = np.divmod(values, self._columns)
        for number, key in enumerate(self._keys):
            if number % 2:
                column = _turned(column, row, key, self._columns)
            else:
                row = _turned(row, column, key, self._rows)
        return row * self._columns + column

    def _backward(self, values: Ints) -> Ints:
        row, column = np.divmod(values, self._columns)
        for number, key in reversed(list(enumerate(self._keys))):
            if number % 2:
                column = _turned(column, row, key, self._columns, sign=-1)
            else:
                row = _turned(row, column, key, self._rows, sign=-1)
        return row * self._columns + column


def _turned(part: Ints, other: Ints, key: int, size: int, sign: int = 1) -> Ints:
    """One half of the pair, turned by an amount that the other half decides."""
    amount = below(np.full(1, size), hashes(key, other))
    turned = part + sign * amount
    turned[turned >= size] -= size
    turned[turned < 0] += size
    return turned


def _mix_in_place(values: Hashes) -> Hashes:
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _mixed(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
