"""What the kernels must compute, in plain NumPy and float64: one time step after the other, gradients written by hand.

A stack is a `Problem`; `run` gives its outputs and `differentiate` its gradients, both as dictionaries by name. All
sequences go through every step side by side; those that have ended (or, in reverse, not begun) stand still.

Legend: T steps, B sequences, I inputs, H hidden units, L layers, D directions, G gates of the cell.
x (T, B, I) inputs      y (T, B, D H) outputs, zero past a sequence's end
h, c (L D, B, H) states before the first step (h0, c0) and after the last (hT, cT): of layer 0, its reverse, layer 1 ...
a = W_ih x + b_ih, u = W_hh h + b_hh: (B, G H), gates in torch's order (LSTM i f g o, GRU r z n)
d…  gradient of the loss with respect to …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

CellName = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
CELLS: tuple[CellName, ...] = ("lstm", "gru", "rnn_tanh", "rnn_relu")
GATES: dict[CellName, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

Array = NDArray[np.float64]
Arrays = dict[str, Array]


class Weights(NamedTuple):
    """Of one layer in one direction: (G H, inputs), (G H, H), (G H,), (G H,)."""

    w_ih: Array
    w_hh: Array
    b_ih: Array | None
    b_hh: Array | None


@dataclass(frozen=True)
class Problem:
    """A stack of layers and what goes into it."""

    cell: CellName
    x: Array
    lengths: NDArray[np.int64]
    """(B,) valid steps of each sequence, at most T."""
    weights: tuple[Weights, ...]
    """L D of them, in the order of the states."""
    directions: int = 1
    h0: Array | None = None
    c0: Array | None = None
    kept: tuple[NDArray[np.bool_], ...] = ()
    """L - 1 masks (T, B, D H) of what dropout keeps between layers, or none at all."""
    dropout_scale: float = 1.0

    @property
    def hidden(self) -> int:
        """H."""
        return int(self.weights[0].w_hh.shape[1])

    @property
    def layers(self) -> int:
        """L."""
        return len(self.weights) // self.directions

    @property
    def active(self) -> NDArray[np.bool_]:
        """(T, B): whether the sequence has this step."""
        mask: NDArray[np.bool_] = np.arange(self.x.shape[0])[:, None] < self.lengths
        return mask

    def noise(self, layer: int) -> Array:
        """Say what a layer's inputs are multiplied by."""
        return np.where(self.kept[layer - 1], self.dropout_scale, 0.0) if layer > 0 and self.kept else np.ones(1)


class Step(NamedTuple):
    """What the backward pass needs of one step: h and c before it, a and u."""

    h: Array
    c: Array
    a: Array
    u: Array


class Direction(NamedTuple):
    """One layer's run in one direction: the time of each step in the order of processing, and its tape."""

    inputs: Array
    times: range
    tape: list[Step]
    y: Array
    h: Array
    c: Array


def sigmoid(s: Array) -> Array:
    """Logistic function, by tanh: it cannot overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * s)


def step_forward(cell: CellName, step: Step) -> tuple[Array, Array]:
    """Give h and c after a step."""
    h, c, a, u = step
    if cell == "lstm":
        i, f, g, o = np.split(a + u, 4, axis=1)
        after = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(after), after
    if cell == "gru":
        (a_r, a_z, a_n), (u_r, u_z, u_n) = np.split(a, 3, axis=1), np.split(u, 3, axis=1)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        return (1 - z) * np.tanh(a_n + r * u_n) + z * h, c
    return (np.tanh(a + u) if cell == "rnn_tanh" else np.maximum(a + u, 0)), c


def step_backward(cell: CellName, step: Step, dh: Array, dc: Array) -> tuple[Array, Array, Array, Array]:
    """From the gradients of h and c after a step to those of a, u, and of h (not through u) and c before it."""
    h, c, a, u = step
    if cell == "lstm":
        i, f, g, o = np.split(a + u, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        squashed = np.tanh(f * c + i * g)
        dc = dc + dh * o * (1 - squashed**2)
        parts = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g**2), dh * squashed * o * (1 - o)
        sums = np.concatenate(parts, axis=1)
        return sums, sums, np.zeros_like(h), dc * f
    if cell == "gru":
        (a_r, a_z, a_n), (u_r, u_z, u_n) = np.split(a, 3, axis=1), np.split(u, 3, axis=1)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        n = np.tanh(a_n + r * u_n)
        dn = dh * (1 - z) * (1 - n**2)
        dr, dz = dn * u_n * r * (1 - r), dh * (h - n) * z * (1 - z)
        return np.concatenate((dr, dz, dn), axis=1), np.concatenate((dr, dz, dn * r), axis=1), dh * z, dc
    slope = 1 - np.tanh(a + u) ** 2 if cell == "rnn_tanh" else (a + u > 0).astype(np.float64)
    return dh * slope, dh * slope, np.zeros_like(h), dc


def run(problem: Problem) -> Arrays:
    """y, hT and, for an LSTM, cT."""
    stack = _run_layers(problem)
    results = {
        "y": np.concatenate([way.y for way in stack[-problem.directions :]], axis=2),
        "hT": np.stack([way.h for way in stack]),
    }
    if problem.cell == "lstm":
        results["cT"] = np.stack([way.c for way in stack])
    return results


def differentiate(problem: Problem, pulled: Mapping[str, Array]) -> Arrays:
    """Give the gradients "x", "h0", "c0", "w_ih.0" ... of all results times `pulled`, which may lack some."""
    stack = _run_layers(problem)
    D, H = problem.directions, problem.hidden
    dh, dc = (_or_zeros(pulled.get(name), (len(stack), problem.x.shape[1], H)) for name in ("hT", "cT"))
    dy = _or_zeros(pulled.get("y"), (*problem.x.shape[:2], D * H))
    gradients: Arrays = {"h0": np.zeros_like(dh), "c0": np.zeros_like(dc)}
    for layer in reversed(range(problem.layers)):
        d_inputs = np.zeros_like(stack[layer * D].inputs)
        for d in range(D):
            i = layer * D + d
            own = _direction_backward(problem, i, stack[i], dy[..., d * H : (d + 1) * H], dh[i], dc[i])
            d_inputs += own.pop("x")
            gradients["h0"][i], gradients["c0"][i] = own.pop("h0"), own.pop("c0")
            gradients |= {f"{name}.{i}": gradient for name, gradient in own.items()}
        dy = d_inputs * problem.noise(layer)
    return gradients | {"x": dy}


def distance_to_kink(problem: Problem) -> float:
    """How near to zero a sum comes whose sign decides a gradient (relu); exact zeros do not count."""
    if problem.cell != "rnn_relu":
        return np.inf
    sums = [
        np.abs(step.a + step.u)[problem.active[t]]
        for way in _run_layers(problem)
        for t, step in zip(way.times, way.tape, strict=True)
    ]
    return min(float(np.min(part, initial=np.inf, where=part > 0)) for part in sums)


def _run_layers(problem: Problem) -> list[Direction]:
    stack: list[Direction] = []
    inputs = problem.x
    for layer in range(problem.layers):
        inputs = inputs * problem.noise(layer)
        stack += [
            _direction_forward(problem, layer * problem.directions + d, inputs) for d in range(problem.directions)
        ]
        inputs = np.concatenate([way.y for way in stack[-problem.directions :]], axis=2)
    return stack


def _direction_forward(problem: Problem, i: int, inputs: Array) -> Direction:
    T, B, H = *inputs.shape[:2], problem.hidden
    weights, active = problem.weights[i], problem.active[..., None]
    h, c = (_or_zeros(None if state is None else state[i], (B, H)) for state in (problem.h0, problem.c0))
    times = range(T - 1, -1, -1) if i % problem.directions else range(T)
    tape, y = [], np.zeros((T, B, H))
    for t in times:
        a = inputs[t] @ weights.w_ih.T + _or_zeros(weights.b_ih, (1,))
        u = h @ weights.w_hh.T + _or_zeros(weights.b_hh, (1,))
        tape.append(Step(h, c, a, u))
        next_h, next_c = step_forward(problem.cell, tape[-1])
        h, c = np.where(active[t], next_h, h), np.where(active[t], next_c, c)
        y[t] = np.where(active[t], h, 0)
    return Direction(inputs, times, tape, y, h, c)


def _direction_backward(problem: Problem, i: int, way: Direction, dy: Array, dh: Array, dc: Array) -> Arrays:
    weights, active = problem.weights[i], problem.active[..., None]
    sums = {name: np.zeros(weights.w_hh.shape[0]) for name in ("b_ih", "b_hh")}
    sums |= {"w_ih": np.zeros_like(weights.w_ih), "w_hh": np.zeros_like(weights.w_hh)}
    dx = np.zeros_like(way.inputs)
    for t, step in zip(reversed(way.times), reversed(way.tape), strict=True):
        arriving = np.where(active[t], dh + dy[t], 0)
        da, du, dh_past, dc_past = step_backward(problem.cell, step, arriving, np.where(active[t], dc, 0))
        dx[t] = da @ weights.w_ih
        sums["w_ih"] += da.T @ way.inputs[t]
        sums["w_hh"] += du.T @ step.h
        sums["b_ih"] += da.sum(axis=0)
        sums["b_hh"] += du.sum(axis=0)
        dh, dc = np.where(active[t], dh_past + du @ weights.w_hh, dh), np.where(active[t], dc_past, dc)
    return sums | {"x": dx, "h0": dh, "c0": dc}


def _or_zeros(array: Array | None, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape) if array is None else array
