"""Problems that the kernels' tests share: drawn by hypothesis from sizes and a seed, or made to order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from tests.kernels.driver import GRADIENTS, KEEPS, LAYOUTS, Settings
from tests.kernels.reference import GATES, Array, Arrays, CellName, Problem, Weights

STATES = ("h0", "c0")
BIASES = ("b_ih", "b_hh")
RESULTS = ("y", "hT", "cT")


@dataclass(frozen=True)
class Case:
    """Sizes of a problem, what it leaves out, and how it is run."""

    cell: CellName
    inputs: int = 5
    hidden: int = 7
    layers: int = 1
    directions: int = 1
    lengths: tuple[int, ...] = (9, 9, 9)
    spare_steps: int = 0
    """Padded steps behind the longest sequence."""
    dropout: bool = False
    given: frozenset[str] = frozenset({*STATES, *BIASES})
    pulled: frozenset[str] = frozenset(RESULTS)
    """Results that a gradient arrives at."""
    seed: int = 0
    settings: Settings = field(default_factory=Settings)

    def problem(self) -> Problem:
        """Fill it with values that float32 holds exactly; they depend on sizes and seed alone."""
        random = np.random.default_rng(self.seed)
        T, B, H = max(self.lengths) + self.spare_steps, len(self.lengths), self.hidden
        count, width = self.layers * self.directions, self.directions * H

        def normal(*shape: int) -> Array:
            return random.standard_normal(shape, np.float32).astype(np.float64)

        weights = []
        for i in range(count):
            inputs = self.inputs if i < self.directions else width
            shapes = {"w_ih": (inputs,), "w_hh": (H,), "b_ih": (), "b_hh": ()}
            drawn = {name: normal(GATES[self.cell] * H, *shape) * _shrink(H) for name, shape in shapes.items()}
            b_ih, b_hh = (drawn[name] if name in self.given else None for name in BIASES)
            weights.append(Weights(drawn["w_ih"], drawn["w_hh"], b_ih, b_hh))
        states = {name: normal(count, B, H) for name in STATES}
        kept = [random.random((T, B, width)) < 0.75 for _ in range(self.layers - 1)]
        return Problem(
            self.cell,
            normal(T, B, self.inputs),
            np.array(self.lengths),
            tuple(weights),
            self.directions,
            h0=states["h0"] if "h0" in self.given else None,
            c0=states["c0"] if "c0" in self.given and self.cell == "lstm" else None,
            kept=tuple(kept) if self.dropout else (),
            dropout_scale=1.25 if self.dropout else 1.0,
        )

    def gradients(self) -> Arrays:
        """What arrives at the results."""
        random = np.random.default_rng(self.seed + 1)
        T, B, H = max(self.lengths) + self.spare_steps, len(self.lengths), self.hidden
        count = self.layers * self.directions
        shapes = {"y": (T, B, self.directions * H), "hT": (count, B, H), "cT": (count, B, H)}
        drawn = {name: random.standard_normal(shape, np.float32).astype(np.float64) for name, shape in shapes.items()}
        return {name: value for name, value in drawn.items() if name in self.pulled}

    def but(self, **changes: object) -> Case:
        """Change settings."""
        return replace(self, settings=replace(self.settings, **changes))  # type: ignore[arg-type]


@st.composite
def drawn_cases(draw: st.DrawFn, cell: CellName) -> Case:
    """Draw any case that is quickly computed; instruction set and dtype stay open."""
    layout = draw(st.sampled_from(LAYOUTS))
    padded = layout.startswith("padded")
    steps = st.integers(0 if padded else 1, 13)
    lengths = draw(st.lists(steps, min_size=1, max_size=6).filter(any))
    if layout in {"time-major", "batch-first"}:
        lengths = [max(lengths)] * len(lengths)
    size = st.integers(1, 70) | st.sampled_from((1, 15, 16, 17, 32, 33, 64, 65))
    return Case(
        cell,
        inputs=draw(size | st.just(0)),
        hidden=draw(size),
        layers=draw(st.integers(1, 3)),
        directions=draw(st.integers(1, 2)),
        lengths=tuple(lengths),
        spare_steps=draw(st.integers(0, 2)) if padded else 0,
        dropout=draw(st.booleans()),
        given=draw(_subsets(*STATES, *BIASES)),
        pulled=draw(_subsets(*RESULTS)),
        seed=draw(st.integers(0, 1000)),
        settings=Settings(
            keep=draw(st.sampled_from(KEEPS)),
            chunk_steps=draw(st.integers(1, 15)),
            chunks_a_state=draw(st.integers(1, 4)),
            threads=draw(st.integers(1, 3)),
            layout=layout,
            gap=draw(st.sampled_from((0, 3))),
            wanted=draw(_subsets(*GRADIENTS)),
        ),
    )


def _subsets(*names: str) -> st.SearchStrategy[frozenset[str]]:
    """All of them (likely), or any choice."""
    return st.just(frozenset(names)) | st.frozensets(st.sampled_from(names))


def _shrink(hidden: int) -> float:
    """A power of two near one over the root of H: gates neither saturate nor vanish, and floats stay exact."""
    return float(2.0 ** round(-np.log2(hidden) / 2))
