"""Hands a reference `Problem` to the kernels, in any layout and with any settings, and collects what they write.

What must not be read is NaN: gaps between rows, padding, buffers that the forward pass fills for the backward pass.
What will be read back starts out as `UNTOUCHED`, and `Placed.read` checks that everything around the rows still is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lowtide import kernels
from tests.kernels.reference import Array, Arrays, Problem

Layout = Literal["time-major", "batch-first", "packed", "padded", "padded, batch-first"]
LAYOUTS: tuple[Layout, ...] = ("time-major", "batch-first", "packed", "padded", "padded, batch-first")
KeepName = Literal["gates", "outputs", "boundaries"]
KEEPS: tuple[KeepName, ...] = ("gates", "outputs", "boundaries")

UNTOUCHED = -12345.0
STATES = ("h0", "c0")
GRADIENTS = ("x", *STATES, "w_ih", "w_hh", "b_ih", "b_hh")


@dataclass(frozen=True)
class Settings:
    """How the kernels are to do it."""

    isa: str = ""
    dtype: Literal["float32", "float64"] = "float32"
    keep: KeepName = "outputs"
    chunk_steps: int = 4
    chunks_a_state: int = 1
    """Chunks between kept states."""
    threads: int = 1
    layout: Layout = "time-major"
    gap: int = 0
    """Elements between neighbouring rows of x, y, dy and dx."""
    wanted: frozenset[str] = frozenset(GRADIENTS)


@dataclass(frozen=True)
class Rows:
    """Which rows a batch has; the arrays are None where all sequences have all steps."""

    steps: int
    order: NDArray[np.int64]
    """(B,) the caller's number of each sequence, sorted by falling length."""
    active: NDArray[np.bool_]
    """(steps, B) in sorted order."""
    at_time: NDArray[np.int64] | None = None
    before_time: NDArray[np.int64] | None = None
    before_step_reversed: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, lengths: NDArray[np.int64], layout: Layout) -> Rows:
        """Sort the sequences and count."""
        steps = int(lengths.max())
        if layout in {"time-major", "batch-first"}:
            assert (lengths == steps).all(), "these layouts have no ends of sequences"
            return cls(steps, np.arange(lengths.size), np.ones((steps, lengths.size), bool))
        order = np.argsort(-lengths, stable=True)
        active: NDArray[np.bool_] = np.arange(steps)[:, None] < lengths[order]
        at_time = active.sum(axis=1)
        return cls(steps, order, active, at_time, _running_total(at_time), _running_total(at_time[::-1]))

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.active.sum())

    def compact(self, values: NDArray[Any]) -> NDArray[Any]:
        """Bring (T, B, width) in the caller's order to (rows, width), time by time."""
        rows: NDArray[Any] = values[: self.steps, self.order][self.active]
        return rows

    def spread(self, compact: Array, steps: int) -> Array:
        """Bring (rows, width) back, zero where there is no row."""
        values = np.zeros((steps, self.order.size, compact.shape[1]))
        values[np.nonzero(self.active)[0], self.order[np.nonzero(self.active)[1]]] = compact
        return values


class Placed:
    """Rows in a layout: (T, B, width) values as the kernels see them."""

    def __init__(self, rows: Rows, settings: Settings, steps: int, width: int, *, fill: float) -> None:
        """Make memory that holds `fill` everywhere."""
        self._rows, self._layout, self._width = rows, settings.layout, width
        batch, across = rows.order.size, width + settings.gap
        shape = (steps, batch) if settings.layout in {"time-major", "padded"} else (batch, steps)
        self.memory = np.full((*((rows.total,) if self._packed else shape), across), fill, settings.dtype)
        self.place = kernels.Rows()
        self.place.base = self.memory.ctypes.data
        strides = [stride // self.memory.itemsize for stride in self.memory.strides]
        if self._packed:
            self.place.row_stride, self.place.step_stride = across, batch * across
            self.place.step_start = _address(rows.before_time)
        else:
            time, sequence = (0, 1) if settings.layout in {"time-major", "padded"} else (1, 0)
            self.place.step_stride, self.place.row_stride = strides[time], strides[sequence]
            if settings.layout.startswith("padded"):
                self.place.row_index = _address(rows.order)

    def write(self, values: Array) -> None:
        """Fill in the rows that exist, and only these."""
        if self._packed:
            self.memory[:, : self._width] = self._rows.compact(values)
        else:
            self._time_major()[: self._rows.steps][self._valid()] = values[: self._rows.steps][self._valid()]

    def read(self, steps: int) -> Array:
        """(T, B, width), zero behind the last step that any sequence has: the kernels do not go there."""
        outside = [self.memory[..., self._width :]]
        if not self._packed:
            outside.append(self._time_major()[self._rows.steps :])
        assert all((part == UNTOUCHED).all() for part in outside), "the kernels wrote beside their rows"
        if self._packed:
            return self._rows.spread(self.memory[:, : self._width].astype(np.float64), steps)
        values = self._time_major().astype(np.float64)
        values[self._rows.steps :] = 0
        return values

    @property
    def _packed(self) -> bool:
        return self._layout == "packed"

    def _valid(self) -> NDArray[np.bool_]:
        valid = np.empty_like(self._rows.active)
        valid[:, self._rows.order] = self._rows.active
        return valid

    def _time_major(self) -> NDArray[Any]:
        memory = self.memory if self._layout in {"time-major", "padded"} else self.memory.swapaxes(0, 1)
        return memory[..., : self._width]


@dataclass
class Session:
    """One problem under one setting: memory, and the two calls on it."""

    problem: Problem
    settings: Settings
    held: list[object] = field(default_factory=list)
    """Memory that calls point at."""

    def __post_init__(self) -> None:
        """Lay out inputs, and what the forward pass leaves for the backward pass."""
        problem, settings = self.problem, self.settings
        self.rows = Rows.of(problem.lengths, settings.layout)
        T, B, inputs = problem.x.shape
        self.width = problem.directions * problem.hidden
        self.x = Placed(self.rows, settings, T, inputs, fill=np.nan)
        self.x.write(problem.x)
        self.y = Placed(self.rows, settings, T, self.width, fill=UNTOUCHED)
        count = len(problem.weights)
        self.weights = [[None if w is None else self._real(w) for w in own] for own in problem.weights]
        self.first = {name: self._sorted(getattr(problem, name)) for name in STATES}
        self.last = {name: self._outputs(count, B, problem.hidden) for name in ("hT", "cT")}
        self.masks = [np.packbits(self.rows.compact(kept).ravel(), bitorder="little") for kept in problem.kept]
        state, gates = kernels.sizes(self.describe(), settings.isa)
        kept_states = -(-self.rows.steps // self.state_steps)
        self.states = np.full((count, kept_states, state), np.nan, settings.dtype)
        self.gates = np.full((count, gates), np.nan, settings.dtype)
        inner = 0 if self.drops_inner else problem.layers - 1
        self.inner = np.full((inner, self.rows.total, self.width), np.nan, settings.dtype)

    @property
    def state_steps(self) -> int:
        """Steps between kept states."""
        return self.settings.chunk_steps * (1 if self.drops_inner else self.settings.chunks_a_state)

    @property
    def drops_inner(self) -> bool:
        """Whether outputs between layers never exist as a whole."""
        return self.settings.keep == "boundaries" and self.problem.layers > 1 and self.problem.directions == 1

    def describe(self) -> kernels.Call:
        """Fill in what forward and backward have in common."""
        problem, settings, rows = self.problem, self.settings, self.rows
        call = kernels.Call(problem.layers, problem.directions)
        call.cell, call.keep = kernels.Cell[problem.cell], kernels.Keep[settings.keep]
        call.is_double = settings.dtype == "float64"
        call.steps, call.batch, call.total_rows = rows.steps, rows.order.size, rows.total
        call.inputs, call.hidden = problem.x.shape[2], problem.hidden
        call.chunk_steps, call.state_steps, call.threads = settings.chunk_steps, self.state_steps, settings.threads
        call.dropout_scale = problem.dropout_scale
        call.zero_padding = settings.layout.startswith("padded")
        call.rows_at_time, call.start_at_time = _address(rows.at_time), _address(rows.before_time)
        call.start_at_step_reverse = _address(rows.before_step_reversed)
        call.x = self.x.place
        for i, own in enumerate(self.weights):
            layer = call.layer(i)
            layer.w_ih, layer.w_hh, layer.b_ih, layer.b_hh = map(_address, own)
            layer.h0, layer.c0 = (_part(self.first[name], i) for name in STATES)
            if self.masks and i >= problem.directions:
                layer.mask = _address(self.masks[i // problem.directions - 1])
        return call

    def forward_call(self, *, keeps: bool = True) -> kernels.Call:
        """Describe the forward pass; without `keeps` no backward pass can follow."""
        call = self.describe()
        call.y = self.y.place
        if keeps or self.problem.directions == 2:
            call.inner = _address(self.inner)
        else:
            call.keep, call.state_steps = kernels.Keep.boundaries, call.chunk_steps
        for i in range(len(self.weights)):
            layer = call.layer(i)
            layer.hT, layer.cT = _part(self.last["hT"], i), _part(self.last["cT"], i)
            if keeps:
                layer.states, layer.gates = _part(self.states, i), _part(self.gates, i)
        return call

    def forward(self, *, keeps: bool = True) -> Arrays:
        """y, hT and, for an LSTM, cT."""
        kernels.forward(self.forward_call(keeps=keeps), self.settings.isa)
        results = {"y": self.y.read(self.problem.x.shape[0]), "hT": self._unsorted(self.last["hT"])}
        if self.problem.cell == "lstm":
            results["cT"] = self._unsorted(self.last["cT"])
        return results

    def backward(self, pulled: Mapping[str, Array]) -> Arrays:
        """Give the wanted gradients, by the names that `reference.differentiate` has for them."""
        problem, wanted = self.problem, self.settings.wanted
        T, B, inputs = problem.x.shape
        call = self.describe()
        call.inner = _address(self.inner)
        if not self.drops_inner:
            call.y = self.y.place
        if "y" in pulled:
            dy = Placed(self.rows, self.settings, T, self.width, fill=np.nan)
            dy.write(pulled["y"])
            call.dy = dy.place
            self.held.append(dy)
        dx = Placed(self.rows, self.settings, T, inputs, fill=UNTOUCHED)
        if "x" in wanted:
            call.dx = dx.place
        arriving = {name: self._sorted(pulled.get(name)) for name in ("hT", "cT")}
        states = {name: self._outputs(len(self.weights), B, problem.hidden) for name in STATES if name in wanted}
        weights: dict[str, NDArray[Any]] = {}
        for i, own in enumerate(problem.weights):
            layer = call.layer(i)
            layer.states, layer.gates = _part(self.states, i), _part(self.gates, i)
            layer.dhT, layer.dcT = _part(arriving["hT"], i), _part(arriving["cT"], i)
            layer.dh0, layer.dc0 = (_part(states.get(name), i) for name in STATES)
            for name, weight in own._asdict().items():
                if name in wanted and weight is not None:
                    weights[f"{name}.{i}"] = self._outputs(*weight.shape)
                    setattr(layer, f"d{name}", _address(weights[f"{name}.{i}"]))
        kernels.backward(call, self.settings.isa)
        gradients = {name: gradient.astype(np.float64) for name, gradient in weights.items()}
        if problem.cell != "lstm":
            states.pop("c0", None)
        gradients |= {name: self._unsorted(gradient) for name, gradient in states.items()}
        return gradients | ({"x": dx.read(T)} if "x" in wanted else {})

    def _real(self, values: Array) -> NDArray[Any]:
        return np.ascontiguousarray(values, self.settings.dtype)

    def _outputs(self, *shape: int) -> NDArray[Any]:
        return np.full(shape, UNTOUCHED, self.settings.dtype)

    def _sorted(self, states: Array | None) -> NDArray[Any] | None:
        return None if states is None else self._real(states[:, self.rows.order])

    def _unsorted(self, states: NDArray[Any]) -> Array:
        values = np.empty(states.shape)
        values[:, self.rows.order] = states
        return values


def compute(problem: Problem, settings: Settings, pulled: Mapping[str, Array]) -> Arrays:
    """Run forward, then backward: outputs as "y", "hT", "cT" and gradients as "dx", "dh0", "dw_ih.0" and so on."""
    session = Session(problem, settings)
    results = session.forward()
    return results | {f"d{name}": gradient for name, gradient in session.backward(pulled).items()}


def _running_total(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts)))


def _address(array: NDArray[Any] | None) -> int:
    return 0 if array is None else array.ctypes.data


def _part(array: NDArray[Any] | None, index: int) -> int:
    return 0 if array is None or array.size == 0 else _address(array[index])
