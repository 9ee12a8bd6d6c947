"""One batch of sequences as a step reads it: whole or chunk by chunk, with what is valid in each and how it weighs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lowtide.step._picked_rows import picked
from lowtide.step._sequence import Data, cut, map_leaves, map_numbered, whole


@dataclass(frozen=True)
class Span:
    """Steps [start, stop)."""

    start: int
    stop: int

    @property
    def steps(self) -> int:
        """How many they are."""
        return self.stop - self.start

    def cut(self, steps: int) -> list[Span]:
        """Spans of at most so many steps."""
        return [Span(start, min(start + steps, self.stop)) for start in range(self.start, self.stop, steps)]


@dataclass(frozen=True)
class StepBatch:
    """Inputs and targets that may lie on disk, and what of them is valid."""

    inputs: Data
    targets: Data
    steps: int
    """Steps that any sequence has: what lies beyond is padding alone, and never read."""
    sequences: int
    lengths: Tensor | None
    """(B,) int64 on the CPU; None: all steps of all sequences are valid."""
    weight: Tensor | None
    """(B,) or of one value a step, as the data lie; None: all weigh the same."""
    batch_first: bool
    device: torch.device
    fixed: frozenset[int] = frozenset()
    """Which parts of the inputs, counted, have no time, but one value a sequence: (B, ...)."""
    targets_have_steps: bool = True
    """Whether the targets are one for each step; else (B, ...)."""
    static: Data = None
    """(B, ...): what the forward is given a sequence under the name `static`; None: nothing."""

    @property
    def span(self) -> Span:
        """All steps."""
        return Span(0, self.steps)

    @property
    def valid_steps(self) -> int:
        """Valid steps of all sequences."""
        return self.steps * self.sequences if self.lengths is None else int(self.lengths.sum())

    def inputs_of(self, span: Span) -> Data:
        """Load a span's inputs."""
        return cut(
            self.inputs, span.start, span.stop, batch_first=self.batch_first, device=self.device, fixed=self.fixed
        )

    def static_values(self) -> Data:
        """Load what is given once a sequence."""
        return None if self.static is None else whole(self.static, device=self.device)

    def targets_of(self, span: Span) -> Data:
        """Load a span's targets."""
        return cut(self.targets, span.start, span.stop, batch_first=self.batch_first, device=self.device)

    def all_targets(self) -> Data:
        """Load the targets of whole sequences."""
        return whole(self.targets, device=self.device)

    def rows(self, rows: slice | Tensor) -> StepBatch:
        """Some of the sequences, without the padding that they do not need: views where a slice is asked for.

        Args:
            rows: Which: a slice, or (b,) int64 on the CPU.
        """
        batch_axis = 0 if self.batch_first else 1
        lengths = None if self.lengths is None else self.lengths[rows]
        steps = self.steps if lengths is None else max(1, int(lengths.max()))
        sequences = len(range(self.sequences)[rows]) if isinstance(rows, slice) else len(rows)
        targets_axis = batch_axis if self.targets_have_steps else 0
        return replace(
            self,
            inputs=map_numbered(
                lambda number, leaf: picked(leaf, rows, axis=0 if number in self.fixed else batch_axis), self.inputs
            ),
            targets=map_leaves(lambda leaf: picked(leaf, rows, axis=targets_axis), self.targets),
            static=None if self.static is None else map_leaves(lambda leaf: picked(leaf, rows, axis=0), self.static),
            weight=self._weight_of(rows),
            lengths=None if lengths is None or bool((lengths == steps).all()) else lengths,
            steps=steps,
            sequences=sequences,
        )

    def _weight_of(self, rows: slice | Tensor) -> Tensor | None:
        if self.weight is None:
            return None
        axis = 0 if self.weight.dim() == 1 or self.batch_first else 1
        found: Tensor = whole(picked(self.weight, rows, axis=axis), device=self.device)
        return found

    def lengths_in(self, span: Span) -> Tensor | None:
        """Valid steps of each sequence within a span."""
        return None if self.lengths is None else (self.lengths - span.start).clamp(0, span.steps)

    def shape_of(self, span: Span) -> tuple[int, int]:
        """The shape of one value a step, as the data lie."""
        return (self.sequences, span.steps) if self.batch_first else (span.steps, self.sequences)

    def valid_in(self, span: Span) -> Tensor | None:
        """Which values of a span count; None: all."""
        lengths = self.lengths_in(span)
        if lengths is None or bool((lengths == span.steps).all()):
            return None
        valid = torch.arange(span.steps)[:, None] < lengths
        return (valid.T if self.batch_first else valid).to(self.device)

    def weight_in(self, span: Span) -> Tensor | None:
        """The weights of a span's values, to be multiplied with them; None: one."""
        if self.weight is None:
            return None
        if self.weight.dim() == 1:
            return self.weight[:, None] if self.batch_first else self.weight
        return self.weight[:, span.start : span.stop] if self.batch_first else self.weight[span.start : span.stop]
