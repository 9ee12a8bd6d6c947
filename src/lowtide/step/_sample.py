"""A short batch that looks like the data, on which a model is tried: rows from all over the valid steps.

The first steps of a batch say little: silence, a constant header, one padding token. So each step of the sample is a
row from a random time and a random sequence that is valid there. Where that leaves all rows equal, floating-point
values are shrunk a little, each by another part; tokens stay as they are, and `varied` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lowtide.step._batch import StepBatch
from lowtide.step._sequence import Data, leaves, load, map_leaves, map_numbered

SAMPLE_STEPS = 96
"""Steps of a sample. What reaches further to the left or right in time is not seen."""
CUTS = (0, 5, 9, 40, SAMPLE_STEPS)
"""Chunks of different lengths, so that no axis is mistaken for that of time."""
_LANES = 2
_SHORTER = 33
"""Valid steps of the second sequence where lengths are given: it ends before the last chunk begins."""
_SHRINKING = 0.5
"""The most that noise takes from a value: never its sign, so that what was in range stays there."""


@dataclass(frozen=True)
class Sample:
    """Some steps of one or two sequences."""

    inputs: Data
    lanes: int
    """Sequences."""
    lengths: Tensor | None
    """Where the batch has lengths: some of the sample's own."""
    batch_first: bool
    times: tuple[int, ...]
    """Which time of the batch each step comes from."""
    sequences: Tensor
    """(steps, lanes): which sequence of the batch each row comes from."""
    varied: frozenset[int]
    """Which parts of the inputs, counted, hold rows that differ."""
    steps: int = SAMPLE_STEPS
    fixed: frozenset[int] = frozenset()
    """Which parts of the inputs, counted, have no time."""
    static: Data = None
    """What the forward is given once a sequence."""

    @property
    def time_axis(self) -> int:
        """Where time lies."""
        return 1 if self.batch_first else 0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of one value a step, as the data lie."""
        return (self.lanes, self.steps) if self.batch_first else (self.steps, self.lanes)

    @property
    def device_type(self) -> str:
        """What kind of device it lies on."""
        return str(leaves(self.inputs)[0].device.type)

    def cut(self, data: Data, start: int, stop: int) -> Data:
        """Steps [start, stop) of data that lie like the inputs."""
        return map_leaves(lambda leaf: leaf.narrow(self.time_axis, start, stop - start), data)

    def valid_part(self, tensor: Tensor, time_axis: int | None) -> Tensor:
        """What of a tensor belongs to valid steps, where it has axes of time and of sequences."""
        others = [axis for axis, size in enumerate(tensor.shape) if axis != time_axis and size == self.lanes]
        if self.lengths is None or time_axis is None or not others:
            return tensor
        valid = torch.arange(self.steps)[:, None] < self.lengths
        return tensor.movedim((time_axis, others[0]), (0, 1))[valid.to(tensor.device)]

    def lengths_in(self, start: int, stop: int) -> Tensor | None:
        """Valid steps of each sequence among [start, stop)."""
        return None if self.lengths is None else (self.lengths - start).clamp(0, stop - start)


def draw_sample(batch: StepBatch, *, steps: int = SAMPLE_STEPS) -> Sample:
    """Draw one, always the same from the same batch, without moving torch's generators."""
    generator = torch.Generator().manual_seed(0)
    lanes = min(_LANES, batch.sequences)
    times = torch.randint(batch.steps, (steps,), generator=generator)
    sequences = torch.stack([_some_valid(batch, time, lanes, generator) for time in times.tolist()])
    inputs = _rows(batch, batch.inputs, times.tolist(), sequences, fixed=batch.fixed)
    inputs = _with_noise(inputs, set(range(len(leaves(inputs)))) - _varied(inputs, batch), generator)
    shorter = max(1, steps * _SHORTER // SAMPLE_STEPS)
    return Sample(
        inputs,
        lanes,
        lengths=None if batch.lengths is None else torch.tensor([steps, shorter][:lanes]),
        batch_first=batch.batch_first,
        times=tuple(times.tolist()),
        sequences=sequences,
        varied=_varied(inputs, batch),
        steps=steps,
        fixed=batch.fixed,
        static=None if batch.static is None else map_leaves(lambda leaf: _first(leaf, lanes, batch), batch.static),
    )


def targets_of(sample: Sample, batch: StepBatch, *, per_step: bool) -> Data:
    """The targets of a sample: of each of its rows, or of as many sequences as it has."""
    if per_step:
        return _rows(batch, batch.targets, sample.times, sample.sequences)
    return map_leaves(lambda leaf: _first(leaf, sample.lanes, batch), batch.targets)


def _first(leaf: Data, sequences: int, batch: StepBatch) -> Tensor:
    """The first sequences of what has no time."""
    return load(leaf[:sequences], batch.device)


def _some_valid(batch: StepBatch, time: int, lanes: int, generator: torch.Generator) -> Tensor:
    """Sequences that are valid at a time; any, where none is."""
    valid = torch.arange(batch.sequences) if batch.lengths is None else (batch.lengths > time).nonzero()[:, 0]
    if len(valid) == 0:
        valid = torch.arange(batch.sequences)
    return valid[torch.randint(len(valid), (lanes,), generator=generator)]


def _rows(
    batch: StepBatch, data: Data, times: Sequence[int], sequences: Tensor, *, fixed: frozenset[int] = frozenset()
) -> Data:
    """Rows of data along time, one time after another: no more than one of all sequences is loaded at once."""
    batch_axis = 0 if batch.batch_first else 1

    def pick(number: int, leaf: Data) -> Tensor:
        if number in fixed:
            return _first(leaf, sequences.shape[1], batch)
        rows = []
        for time, some in zip(times, sequences, strict=True):
            row = leaf[:, time : time + 1] if batch.batch_first else leaf[time : time + 1]
            row = load(row, row.device if isinstance(row, Tensor) else some.device).detach()
            rows.append(row.index_select(batch_axis, some.to(row.device)))
        return torch.cat(rows, 1 - batch_axis).to(batch.device)

    return map_numbered(pick, data)


def _varied(inputs: Data, batch: StepBatch) -> frozenset[int]:
    """Which parts hold rows that differ; those without time are no matter."""

    def differ(leaf: Tensor) -> bool:
        rows = leaf.transpose(0, 1) if batch.batch_first else leaf
        return bool((rows != rows[:1]).any())

    return frozenset(number for number, leaf in enumerate(leaves(inputs)) if number in batch.fixed or differ(leaf))


def _with_noise(inputs: Data, same: set[int], generator: torch.Generator) -> Data:
    def shrink(number: int, leaf: Tensor) -> Tensor:
        if number not in same or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        parts = 1 - _SHRINKING * torch.rand(leaf.shape, generator=generator)
        return leaf * parts.to(leaf.device, leaf.abs().dtype)

    return map_numbered(shrink, inputs)
