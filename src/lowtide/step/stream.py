"""One optimizer step's gradients through sequences of any length, exact, with the memory of one chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lowtide.nn._carry import Slot, State
from lowtide.nn._lengths import Lengths
from lowtide.step._batch import StepBatch
from lowtide.step._boundaries import Place
from lowtide.step._check import Verdict, check_streamable
from lowtide.step._gradients import averaged_over, gradients_of_step
from lowtide.step._lanes import Lanes, joined_lanes, read_lanes
from lowtide.step._layout import layout_of
from lowtide.step._loss import LossFunction, StepLoss
from lowtide.step._model import StreamedModel
from lowtide.step._objective import make_objective
from lowtide.step._passes import Options, run_windows
from lowtide.step._plain_autograd import plain_autograd
from lowtide.step._reading import check_fit, read_batch
from lowtide.step._scaling import scaled_by
from lowtide.step._sequence import Data
from lowtide.step._settings import Settings
from lowtide.step._verdicts import Verdicts
from lowtide.step._wrappers import unwrapped

Progress = Callable[[int, int], None]
"""Called after each chunk with the chunks done and those to do, both passes counted."""
Weight = Tensor | npt.NDArray[np.generic] | Sequence[float]
_FRESH = "begins anew"
"""The name of the lanes that are to begin anew, among saved states; those of modules have a colon."""


class StreamStep:
    """Adds to every parameter's .grad what the loss over whole sequences would, however long they are.

    ```python
    step = lowtide.StreamStep(model, lowtide.nn.losses.cross_entropy, chunk_steps=512)
    for inputs, targets in batches:  # tensors, or arrays mapped from disk
        optimizer.zero_grad()
        loss = step(inputs, targets)
        optimizer.step()
    ```

    The model runs chunk by chunk, twice: once for the states that its layers carry from chunk to chunk, once for the
    gradients, from the last chunk to the first. Its layers must be lean recurrent layers, `Pool`, `CausalConv1d`,
    modules with `carry_in` and `carry_out` of their own, or act on each time step alone; or its forward takes a state
    as one argument and returns (outputs, state). At first use, and whenever its training flags, the kind of data or
    autocast change, the step tries the model on 96 rows of the data, whole and in chunks, and refuses one that chunks
    would mislead: what reaches further than that is not seen. Models with one output a sequence end in `Pool`, and the
    loss is that of the last chunk's outputs.

    The loss is the mean over valid steps, or over sequences, of what `loss_fn` gives; times `weight` where given. Under
    DistributedDataParallel it is the mean over all ranks, and gradients are exchanged once a step. What the model draws
    is drawn again in the second pass: torch's generators are put back, and Python's and NumPy's global ones where the
    model uses them. What is compiled by torch.compile runs uncompiled here.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        *,
        chunk_steps: int = 512,
        keep_chunks: int = 0,
        window_steps: int | None = None,
        boundaries: Place = "auto",
        batch_first: bool | None = None,
        stateful: bool = False,
        scratch: Path | str | None = None,
        grad_scaler: torch.amp.GradScaler | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Prepare steps; nothing runs yet.

        Args:
            model: What is trained. Its outputs are tensors, or tuples, lists, dictionaries or dataclasses of them.
            loss_fn: From outputs and targets to a loss per step, in the layout of the data, or per sequence, (B,).
            chunk_steps: Time steps that run at once.
            keep_chunks: Chunks at the end of the sequence whose graphs are kept rather than computed again: faster,
                for the memory of so many chunks.
            window_steps: Truncated back-propagation: gradients stop after so many steps, states go on. This is NOT
                exact, and what lies further apart is not learned; None for exact gradients.
            boundaries: Where the states between chunks lie: "memory", "disk" (a mapped scratch file), or "auto": in
                memory up to 32 MiB, beyond on disk. Where there is no disk, or under "memory", more than that are
                kept only in part and the rest computed again.
            batch_first: Whether data are (B, T, ...) rather than (T, B, ...); None: as the model's layers say.
            stateful: Whether a call goes on from the states that the call before ended with: `state`.
            scratch: A folder on disk for scratch files; None for the system's.
            grad_scaler: Scales losses before they are differentiated; the loss returned is not scaled.
            progress: Called after each chunk.
        """
        self._settings = Settings(
            chunk_steps=chunk_steps,
            keep_chunks=keep_chunks,
            window_steps=window_steps,
            place=boundaries,
            folder=None if scratch is None else Path(scratch),
        )
        module, self._group = unwrapped(model)
        self._modules = [module] + ([loss_fn] if isinstance(loss_fn, nn.Module) else [])
        self._model = StreamedModel(module)
        self._loss = StepLoss(loss_fn)
        self._batch_first = layout_of(module) if batch_first is None else batch_first
        check = partial(check_streamable, self._model, self._loss, parameters_of=self._modules, stateful=stateful)
        self._verdicts = Verdicts(self._model, self._modules, check)
        self._stateful = stateful
        self._grad_scaler = grad_scaler
        self._progress = progress
        self._carried: dict[Slot, State] = {}
        self._sequences: int | None = None
        """Of the states carried; None where that is not known."""
        self._fresh: Tensor | None = None
        """Lanes that begin anew at the next call."""

    def __call__(
        self, inputs: Data, targets: Data, *, lengths: Lengths | None = None, weight: Weight | None = None
    ) -> Tensor:
        """Add this batch's gradients to every parameter's .grad, and return its loss.

        Args:
            inputs: What the model takes: tensors, arrays, or anything with a shape that can be sliced along time, in
                tuples or dictionaries as the forward wants them. Only one chunk is loaded at a time.
            targets: What `loss_fn` takes: one value a step, or one a sequence, like the model's outputs.
            lengths: Valid steps of each sequence; None: all.
            weight: What each step's or sequence's loss is multiplied by, (B,) or one value a step.

        Raises:
            LowtideError: Something is not as it must be. Every .grad is then as before the call, as it is after any
                other exception and Ctrl-C.
        """
        device = next((parameter.device for parameter in self._model.module.parameters()), torch.device("cpu"))
        batch = read_batch(
            inputs,
            targets,
            lengths,
            weight,
            batch_first=self._batch_first,
            device=device,
            may_be_empty=self._group is not None,
        )
        with plain_autograd():
            verdict = self._verdicts.on(batch)
            check_fit(batch, per_step=verdict.per_step)
            known = [parameter for module in self._modules for parameter in module.parameters()]
            with gradients_of_step(dict.fromkeys([*known, *verdict.outside]), self._group):
                loss, leaving = self._run(batch, verdict)
        if self._stateful:
            self._carried = {slot: tuple(part.detach().clone() for part in state) for slot, state in leaving.items()}
            self._sequences = batch.sequences
            self._fresh = None
        return loss

    @property
    def state(self) -> Mapping[str, Data] | None:
        """The states that the next call of a stateful step goes on from, by module; None where it begins anew.

        It can be saved with torch.save and set again, on a model built the same way. Lanes that were told to begin anew
        are part of it.
        """
        if not self._carried:
            return None
        states = {self._model.name_of(slot): self._model.saved(slot, state) for slot, state in self._carried.items()}
        return states if self._fresh is None else states | {_FRESH: self._fresh}

    @state.setter
    def state(self, state: Mapping[str, Data] | None) -> None:
        given = dict(state or {})
        fresh = given.pop(_FRESH, None)
        self._carried = dict(self._model.slot_of(name, parts) for name, parts in given.items())
        self._sequences = None if fresh is None else len(fresh)
        self._fresh = fresh

    def reset(self, lanes: Lanes | None = None) -> None:
        """Have lanes of a stateful step begin a new sequence at the next call.

        Args:
            lanes: (B,) true for those that begin anew: a tensor, an array or a list; None for all.

        Raises:
            LowtideError: It is not one truth value for each sequence.
        """
        if lanes is None:
            self.state = None
            return
        fresh = read_lanes(lanes, self._sequences)
        if self._carried:
            self._fresh = fresh if self._fresh is None else joined_lanes(fresh, self._fresh)

    def _run(self, batch: StepBatch, verdict: Verdict) -> tuple[Tensor, Mapping[Slot, State]]:
        settings = self._settings
        windows = batch.span.cut(settings.window_steps or batch.steps)
        spans = [window.cut(settings.chunk_steps) for window in windows]
        objective = make_objective(
            self._loss, batch, [one for part in spans for one in part], per_step=verdict.per_step, group=self._group
        )
        options = Options(
            keep_chunks=settings.keep_chunks,
            keep="gates",
            place=settings.place,
            folder=settings.folder,
            scaled=scaled_by(self._grad_scaler),
            report=self._reporter(sum(2 * len(part) - max(1, min(settings.keep_chunks, len(part))) for part in spans)),
        )
        outcome = run_windows(
            self._model,
            batch,
            objective,
            spans,
            options,
            sources=verdict.sources,
            arriving=self._begin(batch),
            fresh=self._fresh_lanes(batch),
        )
        return averaged_over(outcome.loss.to(batch.device, verdict.loss_type), self._group), outcome.leaving

    def _fresh_lanes(self, batch: StepBatch) -> Tensor | None:
        if self._fresh is None:
            return None
        read_lanes(self._fresh, batch.sequences)
        if self._model.passes_state:
            self._model.own_state.check_lanes()
        return self._fresh

    def _begin(self, batch: StepBatch) -> dict[Slot, State]:
        if not self._stateful:
            return {}
        return {slot: tuple(part.to(batch.device) for part in state) for slot, state in self._carried.items()}

    def _reporter(self, total: int) -> Callable[[], None]:
        if self._progress is None:
            return lambda: None
        progress, done = self._progress, iter(range(1, total + 1))
        return lambda: progress(next(done), total)
