"""A batch: sequences padded to one length, and what a training step must know of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtide.data.frameworks import load
from lowtide.errors import LowtideError

Part = Any
"""One array, several by name, or None."""


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences, or parts of them, padded with zeros to T steps.

    Arrays are torch tensors, or NumPy arrays. `lengths`, `index`, `start` and `begins` stay on the CPU, wherever the
    batch is moved to: layers and packing want them there.
    """

    inputs: Part
    """(B, T, features), or (T, B, features) if not batch_first; by name where the store has several inputs."""
    targets: Part
    """Likewise per step; (B, ...) where there is one target per sequence."""
    lengths: Any
    """(B,) int64: valid steps of each row."""
    index: Any
    """(B,) int64: the sequence of each row, as numbered in what was loaded from; -1 for a lane without one."""
    start: Any
    """(B,) int64: which of its sequence's steps a row begins with."""
    weight: Any = None
    """What each row's loss is multiplied by, (B,), or one value a step; None: nothing."""
    static: Part = None
    """(B, ...): values per sequence."""
    begins: Any = None
    """(B,) bool: lanes that begin a sequence; where others go on from the batch before. None without lanes."""
    steps: int = 0
    """T."""
    batch_first: bool = True
    per_step: frozenset[str] = frozenset()
    """Which of the inputs and targets have one value a step: "inputs", "targets", or "inputs/<name>"."""

    @property
    def size(self) -> int:
        """B."""
        return len(self.lengths)

    @property
    def valid_steps(self) -> int:
        """Steps of all rows together, without padding."""
        return int(self.lengths.sum())

    @property
    def mask(self) -> Any:  # noqa: ANN401 - of either framework
        """True where a step is no padding: (B, T), or (T, B) if not batch_first; where the inputs are."""
        if isinstance(self.lengths, np.ndarray):
            mask = np.arange(self.steps) < self.lengths[:, None]
        else:
            torch = load("torch", wanted_by="a batch of tensors")
            device = _first(self.inputs).device
            mask = torch.arange(self.steps, device=device) < self.lengths.to(device)[:, None]
        return mask if self.batch_first else mask.T

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        found = 0

        def count(part: Any) -> Any:  # noqa: ANN401 - any leaf
            nonlocal found
            found += part.data.nbytes if hasattr(part, "batch_sizes") else part.nbytes
            return part

        self._map(count, _ARRAYS)
        return found

    def to(self, device: Any, *, non_blocking: bool = False) -> Batch:  # noqa: ANN401 - as torch takes it
        """The batch with its data on a device; lengths, index, start and begins stay.

        Raises:
            LowtideError: It holds NumPy arrays.
        """
        self._require_torch("moved to a device")
        return self._map(lambda part: part.to(device, non_blocking=non_blocking), _MOVED)

    def pin_memory(self) -> Batch:
        """The batch in memory that a GPU can read while others compute.

        Raises:
            LowtideError: It holds NumPy arrays.
        """
        self._require_torch("pinned")
        return self._map(lambda part: part.pin_memory(), _MOVED)

    def packed(self) -> Batch:
        """The batch with every input and target per step as a PackedSequence, all of them packed alike.

        Raises:
            LowtideError: It holds NumPy arrays, no row, or a row without steps.
        """
        self._require_torch("packed")
        if not self.size:
            raise LowtideError(
                what="a batch without rows was to be packed",
                why="a PackedSequence holds at least one sequence; a rank has none where fewer are left than ranks",
                fix="leave such rounds out with drop_last=True, or keep batches padded",
            )
        if not bool((self.lengths > 0).all()):
            raise LowtideError(
                what="a batch with rows of length 0 was to be packed",
                why="a PackedSequence holds at least one step of each sequence",
                fix="keep it padded",
            )
        rnn = load("torch.nn.utils.rnn", wanted_by="packed=True")

        def pack(name: str, part: Any) -> Any:  # noqa: ANN401 - any leaf
            if name not in self.per_step or hasattr(part, "batch_sizes"):
                return part
            return rnn.pack_padded_sequence(part, self.lengths, batch_first=self.batch_first, enforce_sorted=False)

        return replace(self, inputs=_named(pack, "inputs", self.inputs), targets=_named(pack, "targets", self.targets))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={_told(getattr(self, name))}" for name in ("inputs", "targets", "static"))
        return f"Batch({self.size} rows, {self.valid_steps} valid of {self.size * self.steps} steps, {told})"

    def _map(self, act: Callable[[Any], Any], names: tuple[str, ...]) -> Batch:
        parts: dict[str, Any] = {name: _named(lambda _, leaf: act(leaf), name, getattr(self, name)) for name in names}
        return replace(self, **parts)

    def _require_torch(self, what: str) -> None:
        if isinstance(self.lengths, np.ndarray):
            raise LowtideError(
                what=f"a batch of NumPy arrays was to be {what}",
                why="that is torch's business",
                fix='load with framework="torch"',
            )


_MOVED = ("inputs", "targets", "weight", "static")
_ARRAYS = (*_MOVED, "lengths", "index", "start", "begins")


def _named(act: Callable[[str, Any], Any], name: str, part: Part) -> Part:
    """The same structure, with `act` applied to each array and its name."""
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {key: act(f"{name}/{key}", leaf) for key, leaf in part.items()}
    return act(name, part)


def _first(part: Part) -> Any:  # noqa: ANN401 - any leaf
    leaf = next(iter(part.values())) if isinstance(part, Mapping) else part
    return leaf.data if hasattr(leaf, "batch_sizes") else leaf


def _told(part: Part) -> str:
    if part is None:
        return "None"
    if isinstance(part, Mapping):
        return "{" + ", ".join(f"{name}: {_told(leaf)}" for name, leaf in part.items()) + "}"
    leaf = _first(part)
    return (
        f"{'packed ' if hasattr(part, 'batch_sizes') else ''}{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    )
