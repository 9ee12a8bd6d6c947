"""A model run on a sample of the data: at once, in chunks, with more padding, and with fewer sequences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lowtide.nn._carry import Slot, State
from lowtide.nn._context import BatchContext
from lowtide.ops.autocast import AutocastState
from lowtide.step import _refusals
from lowtide.step._model import Result, StreamedModel, WholeCarry
from lowtide.step._own_state import axes_between
from lowtide.step._sample import CUTS, Sample
from lowtide.step._sequence import Data, leaves, map_leaves, map_numbered
from lowtide.step._trace import Trace, floating, recorded

_FAILURES = (RuntimeError, ValueError, IndexError, TypeError)
"""What sizes that do not fit raise."""
PADDING = 3
"""Steps of padding added behind a sample."""


@dataclass(frozen=True)
class Run:
    """One run of a model on steps of a sample."""

    outputs: Any
    leaving: Mapping[Slot, State]
    trace: Trace

    @property
    def tensors(self) -> list[Tensor]:
        """The outputs' tensors that gradients can flow through."""
        return floating(self.outputs)


class Trial:
    """Runs one model on one sample."""

    def __init__(
        self,
        model: StreamedModel,
        sample: Sample,
        autocast: AutocastState | None,
        put_back: Callable[[], None],
        *,
        carries: bool = True,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            model: What is run.
            sample: On what.
            autocast: What autocast is set to where the model is trained.
            put_back: Puts all random generators back to where they stood, before each run.
            carries: Whether states are carried, as in a stream; else sequences are whole.
        """
        self.model = model
        self.sample = sample
        self._put_back = put_back
        self._autocast = autocast
        self._carries = carries

    def first_run(self) -> None:
        """Run once to find out how the forward treats states and what it draws from.

        Raises:
            LowtideError: It does not run, changes its inputs, or returns what cannot be compared.
        """
        given = leaves(self.sample.inputs)
        before = [leaf._version for leaf in given]  # noqa: SLF001 - counts changes in place
        try:
            result = self._call(self.sample.inputs, {}, lengths=self.sample.lengths, check=True)
        except _FAILURES as error:
            raise _refusals.fails_whole(self.model, error, steps=self.sample.steps, lanes=self.sample.lanes) from error
        if [leaf._version for leaf in given] != before:  # noqa: SLF001 - as above
            raise _refusals.changes_inputs()
        _check_outputs(result.outputs)

    def whole(self) -> Run:
        """All steps at once."""
        return self._run(self.sample.inputs, {}, self.sample.lengths)

    def in_chunks(self, whole: Run) -> list[Run]:
        """One chunk after another; `whole` tells which states are none, since they grow with the steps."""
        runs: list[Run] = []
        arriving: Mapping[Slot, State] = {}
        for start, stop in itertools.pairwise(CUTS):
            try:
                run = self._run(self._part(start, stop), arriving, self.sample.lengths_in(start, stop))
            except _FAILURES as error:
                raise _refusals.fails_in_chunks(error, steps=self.sample.steps, chunk=stop - start) from error
            if not runs:
                self.model.manner = replace(self.model.manner, within_steps=_within_steps(whole, run))
            arriving = {slot: one for slot, one in run.leaving.items() if slot not in self.model.manner.within_steps}
            runs.append(run)
        return runs

    def padded(self) -> Run:
        """All steps at once, with other padding and more of it."""
        return self._run(self.padding_behind(self.sample.inputs, fixed=self.sample.fixed), {}, self.sample.lengths)

    def context_of(self, *, padding: int) -> BatchContext:
        """What was in force in the run with so many steps of padding behind, for what is computed again afterwards."""
        if self._carries:
            return BatchContext()
        steps = self.sample.steps + padding
        return BatchContext(self.sample.lengths, steps, passes_state=self.model.passes_state)

    def padding_behind(self, data: Data, *, fixed: frozenset[int] = frozenset()) -> Data:
        """Data that lie like the sample's, with other padding and more of it; parts of the numbers `fixed` as is."""
        assert self.sample.lengths is not None
        valid = torch.arange(self.sample.steps + PADDING)[:, None] < self.sample.lengths
        valid = valid.T if self.sample.batch_first else valid

        def pad(number: int, leaf: Tensor) -> Tensor:
            if number in fixed:
                return leaf
            axis, front = self.sample.time_axis, min(PADDING, self.sample.steps)
            more = leaf.narrow(axis, 0, front)
            longer = torch.cat([leaf, *[more] * PADDING], axis).narrow(axis, 0, self.sample.steps + PADDING)
            here = valid.view(*valid.shape, *(1 for _ in leaf.shape[2:])).to(leaf.device)
            return torch.where(here, longer, longer.flip(axis))

        return map_numbered(pad, data)

    def look_at_own_state(self) -> None:
        """Find out where the sequences lie in the forward's own state, and whether it begins with zeros."""
        own, steps = self.model.own_state, CUTS[1]
        own.axes, own.begins_with_zeros = (), False
        try:
            one, two = (self._call(self._part(0, steps, lanes=lanes), {}, lengths=None) for lanes in (1, 2))
        except _FAILURES:  # a model for batches of one size
            return
        own.axes = axes_between(one.leaving[own.slot], two.leaving[own.slot])
        zeros = {own.slot: tuple(torch.zeros_like(part) for part in two.leaving[own.slot])}
        begun = self._call(self._part(0, steps, lanes=2), zeros, lengths=None)
        pairs = zip(floating(two.outputs), floating(begun.outputs), strict=True)
        own.begins_with_zeros = all(torch.allclose(ours, theirs, equal_nan=True) for ours, theirs in pairs)

    def _part(self, start: int, stop: int, *, lanes: int | None = None) -> Data:
        """Steps [start, stop) of the sample, of its sequences over and over where other than its own are asked for."""
        part = self.sample.cut(self.sample.inputs, start, stop)
        if lanes is None:
            return part
        numbers = torch.arange(lanes) % self.sample.lanes
        return map_leaves(lambda leaf: leaf.index_select(1 - self.sample.time_axis, numbers.to(leaf.device)), part)

    def _run(self, inputs: Data, arriving: Mapping[Slot, State], lengths: Tensor | None) -> Run:
        with recorded(self.model.module) as trace:
            result = self._call(inputs, arriving, lengths=lengths)
        return Run(result.outputs, result.leaving, trace)

    def _call(
        self, inputs: Data, arriving: Mapping[Slot, State], *, lengths: Tensor | None, check: bool = False
    ) -> Result:
        self._put_back()
        steps, batch = self._size_of(inputs)
        return self.model.run(
            inputs,
            self.model.carry(arriving) if self._carries else WholeCarry(),
            steps=steps,
            batch=batch,
            lengths=lengths,
            static=self.sample.static,
            autocast=self._autocast,
            check=check,
        )

    def _size_of(self, inputs: Data) -> tuple[int, int]:
        """Steps and sequences; one step where nothing has time."""
        for number, leaf in enumerate(leaves(inputs)):
            if number not in self.sample.fixed:
                return leaf.shape[self.sample.time_axis], leaf.shape[1 - self.sample.time_axis]
        return 1, self.sample.lanes


def _within_steps(whole: Run, chunk: Run) -> frozenset[Slot]:
    """The calls whose states grow with the number of steps: they run along something else than time."""
    return frozenset(
        slot
        for slot, state in whole.leaving.items()
        if slot in chunk.leaving and [part.shape for part in state] != [part.shape for part in chunk.leaving[slot]]
    )


def _check_outputs(outputs: Any) -> None:  # noqa: ANN401 - whatever a model returns
    """Refuse outputs in which something else than tensors is found, or none that gradients can flow through."""
    for leaf in leaves(outputs):
        if not isinstance(leaf, Tensor) and not isinstance(leaf, (int, float, str, type(None))):
            raise _refusals.unknown_outputs(leaf)
    if not floating(outputs):
        raise _refusals.unknown_outputs(next(iter(leaves(outputs)), outputs))
