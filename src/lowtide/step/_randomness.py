"""Where random generators stand, as tensors that can lie among a chunk's boundary states.

A chunk that is computed again must draw what it drew before. torch's generators are always put back; Python's, NumPy's
and torch.Generator objects of the model's own where it was seen to draw from them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lowtide.errors import LowtideError

_PYTHON_VERSION = 3
"""Of the tuple that random.getstate gives."""


@dataclass(frozen=True)
class Sources:
    """What a model draws from beside torch's default generators."""

    python: bool = False
    """The global generator of the module random."""
    numpy: bool = False
    """The global generator of numpy.random."""
    own: tuple[torch.Generator, ...] = ()
    """Generators that it hands to torch's functions itself."""


class Generators:
    """The generators that a model on these devices draws from."""

    def __init__(self, devices: Sequence[torch.device], sources: Sources) -> None:
        """Watch the CPU's, those of `devices` that are GPUs, and the sources beside them."""
        self._gpus = [device for device in dict.fromkeys(devices) if device.type == "cuda"]
        self._sources = sources

    def state(self) -> list[Tensor]:
        """Where the generators stand."""
        states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]
        states += [generator.get_state() for generator in self._sources.own]
        if self._sources.python:
            states.append(_python_state())
        if self._sources.numpy:
            states.append(_numpy_state())
        return states

    def restore(self, state: Sequence[Tensor]) -> None:
        """Put the generators where they stood."""
        parts = iter(state)
        torch.set_rng_state(next(parts))
        for gpu in self._gpus:
            torch.cuda.set_rng_state(next(parts), gpu)
        for generator in self._sources.own:
            generator.set_state(next(parts))
        if self._sources.python:
            _restore_python(next(parts))
        if self._sources.numpy:
            _restore_numpy(next(parts))

    def stand_at(self, state: Sequence[Tensor]) -> bool:
        """Whether nothing was drawn since."""
        return all(torch.equal(now, then) for now, then in zip(self.state(), state, strict=True))


class Watch:
    """Where all generators stood when it was made; tells which of them a model has moved, and puts them back."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        """Look at the generators of the CPU and of those devices, Python's and NumPy's."""
        self._torch = Generators(devices, Sources())
        self._before = self._torch.state()
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator, which models draw from

    def sources(self, own: Mapping[torch.Generator, Tensor]) -> Sources:
        """What was drawn from since, and `own`: generators of a model and where they stood."""
        return Sources(
            python=random.getstate() != self._python,
            numpy=not _same(np.random.get_state(legacy=False), self._numpy),  # noqa: NPY002 - as above
            own=tuple(own),
        )

    def put_back(self, own: Mapping[torch.Generator, Tensor]) -> None:
        """Put all of them back."""
        self._torch.restore(self._before)
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002 - as above
        for generator, state in own.items():
            generator.set_state(state)


def _same(one: object, other: object) -> bool:
    """Whether two states of NumPy's generator, nested dictionaries of arrays and numbers, are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))  # type: ignore[arg-type] # any object will do


def _python_state() -> Tensor:
    version, words, gauss = random.getstate()
    assert version == _PYTHON_VERSION
    # The number that random.gauss keeps for its next call, and no number where it keeps none: infinity, which equals
    # itself.
    return torch.tensor([math.inf if gauss is None else gauss, *words], dtype=torch.float64)


def _restore_python(state: Tensor) -> None:
    gauss, *words = state.tolist()
    random.setstate((_PYTHON_VERSION, tuple(map(int, words)), None if gauss == math.inf else gauss))


def _numpy_state() -> Tensor:
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator, which models draw from
    if state["bit_generator"] != "MT19937":
        raise LowtideError(
            what=f"the model draws from NumPy's global generator, which is a {state['bit_generator']}",
            why="chunks that are computed again must draw the same, and only MT19937's state can be put back",
            fix="draw with torch's functions in the model",
        )
    inner = state["state"]
    return torch.tensor([inner["pos"], state["has_gauss"], state["gauss"], *inner["key"].tolist()], dtype=torch.float64)


def _restore_numpy(state: Tensor) -> None:
    position, has_gauss, gauss, *key = state.tolist()
    inner = {"key": np.array(key, dtype=np.uint32), "pos": int(position)}
    whole = {"bit_generator": "MT19937", "state": inner, "has_gauss": int(has_gauss), "gauss": gauss}
    np.random.set_state(whole)  # noqa: NPY002 - the global generator, which models draw from
