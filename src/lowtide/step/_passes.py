"""Exact back-propagation through a long sequence, chunk by chunk: one pass for the states, one for the gradients.

The first pass runs the chunks without gradients and keeps what each one starts from. The second takes them from the
last to the first: it runs a chunk again with gradients, differentiates the loss within it and what it hands to its
right neighbour, and hands the gradient of what it started from to its left one. Chunks at the end may keep their graphs
from the first pass on; the very last one always does. Extra work: one forward pass less those. Memory: the graph of one
chunk and the kept ones, and a state for each chunk (`_boundaries.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lowtide.nn._carry import ClosedCarry, Finished, Slot, State
from lowtide.nn._context import BatchContext, running
from lowtide.ops.autocast import AutocastState
from lowtide.ops.spec import Keep
from lowtide.step._batch import Span, StepBatch
from lowtide.step._boundaries import Place
from lowtide.step._gradients import towards
from lowtide.step._model import StreamedModel
from lowtide.step._objective import Objective
from lowtide.step._randomness import Generators, Sources
from lowtide.step._starts import Start, Starts

StateGradients = Mapping[Slot, tuple[Tensor | None, ...]]


@dataclass(frozen=True)
class Options:
    """How passes run, whatever the batch."""

    keep_chunks: int
    """Chunks at the end whose graphs are kept."""
    keep: Keep
    """What lean layers keep of the chunk that is differentiated."""
    place: Place
    """Where boundary states lie."""
    folder: Path | None
    """For those on disk."""
    scaled: Callable[[Tensor], Tensor]
    """A loss as it is differentiated: a GradScaler's work."""
    report: Callable[[], None]
    """Called after each chunk of either pass."""


@dataclass(frozen=True)
class Alive:
    """A chunk whose graph exists."""

    arriving: Mapping[Slot, State]
    leaving: Mapping[Slot, State]
    share: Tensor | None
    """What it adds to the loss; None where it adds nothing."""


@dataclass(frozen=True)
class Outcome:
    """What the passes over some chunks come to; the gradients are in the parameters."""

    loss: Tensor
    leaving: Mapping[Slot, State]
    """What the last chunk left."""


class TwoPasses:
    """The two passes over consecutive chunks of a batch."""

    def __init__(
        self,
        model: StreamedModel,
        batch: StepBatch,
        objective: Objective,
        spans: Sequence[Span],
        options: Options,
        *,
        sources: Sources,
        fresh: Tensor | None = None,
    ) -> None:
        """Prepare.

        Args:
            model: What is run.
            batch: On what.
            objective: What each chunk adds to the loss.
            spans: The chunks.
            options: How.
            sources: What the model draws from beside torch's default generators.
            fresh: (B,) lanes that begin anew, whatever arrives at the first chunk.
        """
        self._model = model
        self._batch = batch
        self._objective = objective
        self._spans = spans
        self._options = options
        self._fresh = fresh
        self._generators = Generators([batch.device], sources)
        self._autocast = AutocastState.current(batch.device.type)
        self._states_end_early: bool | None = None
        """Whether what follows the last state in a forward draws no random numbers, so that a pass for states alone may
        leave it out; None: not known yet."""

    def __call__(self, arriving: Mapping[Slot, State]) -> Outcome:
        """Run both passes from the states that arrive at the first chunk."""
        recomputed = max(0, len(self._spans) - max(1, self._options.keep_chunks))
        start = Start(arriving, self._generators.state())
        starts = Starts(start, recomputed, self._options.place, self._options.folder, self._advance)
        for number in range(recomputed):
            start = self._advance(number, start)
            self._options.report()
            if number + 1 < recomputed:
                starts.keep(number + 1, start)
        alive, leaving = self._keep_alive(recomputed, start.arriving)
        after = self._generators.state()
        loss = torch.zeros((), dtype=torch.float64)
        gradient: StateGradients = {}
        for number in reversed(range(len(self._spans))):
            chunk = alive.pop() if alive else self._revive(number, starts.get(number))
            if chunk.share is not None:
                loss += chunk.share.detach().double().cpu()
            gradient = self._backward(chunk, gradient)
            self._options.report()
        self._generators.restore(after)
        return Outcome(loss, leaving)

    def _keep_alive(self, first: int, arriving: Mapping[Slot, State]) -> tuple[list[Alive], Mapping[Slot, State]]:
        """Run the chunks from `first` on, in order, and keep their graphs."""
        alive: list[Alive] = []
        for number in range(first, len(self._spans)):
            alive.append(self._enliven(number, arriving))
            arriving = _detached(alive[-1].leaving)
        return alive, arriving

    def _revive(self, number: int, start: Start) -> Alive:
        self._generators.restore(start.generators)
        return self._enliven(number, start.arriving)

    def _enliven(self, number: int, arriving: Mapping[Slot, State]) -> Alive:
        """Run a chunk with gradients."""
        leaves = _detached(arriving)
        if number > 0:
            for state in leaves.values():
                for part in state:
                    part.requires_grad_(part.is_floating_point() or part.is_complex())
        with torch.enable_grad():
            outputs, leaving = self._run(number, leaves, needs_outputs=self._adds_to_loss(number))
            share = self._objective.share(outputs, self._spans[number]) if self._adds_to_loss(number) else None
        return Alive(leaves, leaving, share)

    def _adds_to_loss(self, number: int) -> bool:
        return self._objective.per_step or self._spans[number].stop == self._batch.steps

    def _advance(self, number: int, start: Start) -> Start:
        """Run a chunk for its states alone."""
        self._generators.restore(start.generators)
        with torch.no_grad():
            _, leaving = self._run(number, start.arriving, needs_outputs=False)
        return Start(leaving, self._generators.state())

    def _run(
        self, number: int, arriving: Mapping[Slot, State], *, needs_outputs: bool
    ) -> tuple[object, Mapping[Slot, State]]:
        span = self._spans[number]
        watch = _LastState(self._generators, len(arriving), self._states_end_early, needs_outputs=needs_outputs)
        carry = self._model.carry(
            arriving,
            fresh=self._fresh if number == 0 else None,
            on_leave=watch,
        )
        result = self._model.run(
            self._batch.inputs_of(span),
            carry,
            steps=span.steps,
            batch=self._batch.sequences,
            lengths=self._batch.lengths_in(span),
            keep=self._options.keep,
            autocast=self._autocast,
        )
        if self._states_end_early is None:
            self._states_end_early = watch.was_the_last_to_draw()
        return result.outputs, result.leaving

    def _backward(self, chunk: Alive, gradient: StateGradients) -> StateGradients:
        """From the gradient of what a chunk left to that of what arrived there; weights' add up in their .grad."""
        roots: list[Tensor] = []
        if chunk.share is not None and chunk.share.requires_grad:
            roots.append(self._options.scaled(chunk.share))
        with running(BatchContext(carry=ClosedCarry())), torch.autocast(self._batch.device.type, enabled=False):
            for slot, parts in gradient.items():
                for left, part in zip(chunk.leaving[slot], parts, strict=True):
                    if part is not None and left.requires_grad:
                        roots.append(towards(left, part))
            if roots:
                torch.autograd.backward(roots)
        return {slot: tuple(part.grad for part in state) for slot, state in chunk.arriving.items()}


def run_windows(
    model: StreamedModel,
    batch: StepBatch,
    objective: Objective,
    windows: Sequence[Sequence[Span]],
    options: Options,
    *,
    sources: Sources,
    arriving: Mapping[Slot, State] | None = None,
    fresh: Tensor | None = None,
) -> Outcome:
    """Both passes over each window's chunks, one window after another; gradients end where a window begins.

    Args:
        model: What is run.
        batch: On what.
        objective: What each chunk adds to the loss.
        windows: The chunks of each window; of one, for exact gradients.
        options: How.
        sources: What the model draws from beside torch's default generators.
        arriving: The states that the first chunk begins with; None: the model's own.
        fresh: (B,) lanes that begin anew, whatever arrives.
    """
    outcome = Outcome(torch.zeros((), dtype=torch.float64), arriving or {})
    for spans in windows:
        passes = TwoPasses(model, batch, objective, spans, options, sources=sources, fresh=fresh)
        further = passes(outcome.leaving)
        outcome, fresh = Outcome(outcome.loss + further.loss, further.leaving), None
    return outcome


class _LastState:
    """Sees the last state of a forward leave, and ends the forward there where nothing that follows is wanted."""

    def __init__(self, generators: Generators, expected: int, ends_early: bool | None, *, needs_outputs: bool) -> None:
        self._generators = generators
        self._expected = expected
        self._ends_early = ends_early
        self._needs_outputs = needs_outputs
        self._then: list[Tensor] | None = None

    def __call__(self, left: int) -> None:
        if left != self._expected:
            return
        if self._ends_early and not self._needs_outputs:
            raise Finished
        if self._ends_early is None:
            self._then = self._generators.state()

    def was_the_last_to_draw(self) -> bool | None:
        """Whether nothing was drawn behind the last state; None where no state was expected."""
        return None if self._then is None else self._generators.stand_at(self._then)


def _detached(states: Mapping[Slot, State]) -> dict[Slot, State]:
    return {slot: tuple(part.detach() for part in state) for slot, state in states.items()}
