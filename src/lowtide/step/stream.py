"""One optimizer step's gradients through sequences of any length, exact, with the memory of one chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lowtide.errors import LowtideError
from lowtide.nn._carry import Slot, State
from lowtide.nn._lengths import Lengths, checked_lengths
from lowtide.nn._options import check_steps
from lowtide.step._batch import StreamBatch
from lowtide.step._boundaries import Place
from lowtide.step._check import SAMPLE_BATCH, SAMPLE_STEPS, Sample, check_streamable
from lowtide.step._gradients import gradients_of_step
from lowtide.step._loss import LossFunction, StepLoss
from lowtide.step._model import StreamedModel
from lowtide.step._objective import make_objective
from lowtide.step._passes import Options, TwoPasses
from lowtide.step._randomness import Generators
from lowtide.step._sequence import Data, cut, leaves, map_leaves, size_of

Progress = Callable[[int, int], None]
"""Called after each chunk with the chunks done and those to do, both passes counted."""


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
    modules with `carry_in` and `carry_out` of their own, or act on each time step alone. At first use the step tries
    the model on a few steps of the data, whole and in chunks, and refuses one that chunks would mislead. Models with
    one output a sequence end in `Pool`, and the loss is that of the last chunk's outputs.

    The loss is the mean over valid steps, or over sequences, of what `loss_fn` gives; times `weight` where given. Under
    DistributedDataParallel it is the mean over all ranks, and gradients are exchanged once a step. Torch's random
    generators are put back for the second pass, so dropout drops the same there; other generators are not.
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
            model: What is trained. A compiled model runs uncompiled here.
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
        check_steps(chunk_steps, 0)
        _check_count("chunk_steps", chunk_steps, least=1)
        _check_count("keep_chunks", keep_chunks, least=0)
        if window_steps is not None:
            _check_count("window_steps", window_steps, least=1)
        if boundaries not in {"memory", "disk", "auto"}:
            raise LowtideError(
                what=f"boundaries={boundaries!r} is no place for boundary states",
                why="the states between chunks lie in memory or on disk until the second pass",
                fix='give "memory", "disk" or "auto"',
            )
        plain = getattr(model, "_orig_mod", model)
        self._group = plain.process_group if isinstance(plain, DistributedDataParallel) else None
        module = plain.module if isinstance(plain, DistributedDataParallel) else plain
        self._model = StreamedModel(module)
        self._loss_module = loss_fn if isinstance(loss_fn, nn.Module) else None
        self._loss = StepLoss(loss_fn)
        self._chunk_steps = chunk_steps
        self._keep_chunks = keep_chunks
        self._window_steps = window_steps
        self._place: Place = boundaries
        self._folder = None if scratch is None else Path(scratch)
        self._batch_first = _layout_of(module) if batch_first is None else batch_first
        self._stateful = stateful
        self._grad_scaler = grad_scaler
        self._progress = progress
        self._per_step: bool | None = None
        """Whether the model gives one output a step; None before it was tried."""
        self._carried: dict[Slot, State] = {}
        self._fresh: Tensor | None = None

    def __call__(
        self, inputs: Data, targets: Data, *, lengths: Lengths | None = None, weight: Tensor | None = None
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
        batch = self._read(inputs, targets, lengths, weight)
        if self._per_step is None:
            self._per_step = check_streamable(self._model, _sample(batch), Generators([batch.device]))
        _check_targets(batch, per_step=self._per_step)
        modules = [self._model.module] + ([] if self._loss_module is None else [self._loss_module])
        parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
        with gradients_of_step(parameters, self._group):
            loss, leaving = self._run(batch)
        if self._stateful:
            self._carried = {slot: tuple(part.detach().clone() for part in state) for slot, state in leaving.items()}
            self._fresh = None
        return loss

    @property
    def state(self) -> Mapping[str, Data] | None:
        """The states that the next call of a stateful step goes on from, by module; None where it begins anew.

        It can be saved with torch.save and set again, on a model built the same way.
        """
        if not self._carried:
            return None
        return {self._model.name_of(slot): self._model.saved(slot, state) for slot, state in self._carried.items()}

    @state.setter
    def state(self, state: Mapping[str, Data] | None) -> None:
        self._carried = dict(self._model.slot_of(name, parts) for name, parts in (state or {}).items())
        self._fresh = None

    def reset(self, lanes: Tensor | None = None) -> None:
        """Have lanes of a stateful step begin a new sequence at the next call.

        Args:
            lanes: (B,) true for those that begin anew; None for all.
        """
        if lanes is None:
            self.state = None
        elif self._carried:
            self._fresh = lanes.bool() if self._fresh is None else self._fresh | lanes.bool()

    def _read(self, inputs: Data, targets: Data, lengths: Lengths | None, weight: Tensor | None) -> StreamBatch:
        steps, sequences = size_of(inputs, batch_first=self._batch_first, name="inputs")
        if steps == 0 or sequences == 0:
            raise LowtideError(
                what=f"the inputs hold {steps} steps of {sequences} sequences",
                why="there is nothing to learn from",
                fix="leave empty batches out",
            )
        if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves(inputs)):
            raise LowtideError(
                what="the inputs require gradients",
                why="a stream computes the parameters' gradients alone: those of the inputs would be as long as they",
                fix="give inputs.detach(), and make what computed them part of the model",
            )
        device = next((parameter.device for parameter in self._model.module.parameters()), torch.device("cpu"))
        checked = None if lengths is None else checked_lengths(lengths, sequences=sequences, steps=steps)
        batch = StreamBatch(
            inputs=inputs,
            targets=targets,
            steps=steps if checked is None else int(checked.max()),
            sequences=sequences,
            lengths=checked,
            weight=None if weight is None else weight.to(device),
            batch_first=self._batch_first,
            device=device,
        )
        whole = replace(batch, steps=steps)
        if weight is not None and weight.shape not in {(sequences,), whole.shape_of(whole.span)}:
            raise LowtideError(
                what=f"weight has shape {tuple(weight.shape)}",
                why=f"the batch has {sequences} sequences, and {whole.shape_of(whole.span)} is one value a step",
                fix="give one weight for each sequence, or one for each step",
            )
        if batch.steps == 0:
            raise LowtideError(
                what="all sequences of the batch have length 0",
                why="the loss is a mean over valid steps",
                fix="leave such a batch out",
            )
        return batch

    def _run(self, batch: StreamBatch) -> tuple[Tensor, Mapping[Slot, State]]:
        assert self._per_step is not None
        windows = batch.span.cut(self._window_steps or batch.steps)
        spans = [window.cut(self._chunk_steps) for window in windows]
        objective = make_objective(
            self._loss, batch, [one for part in spans for one in part], per_step=self._per_step, group=self._group
        )
        options = Options(
            keep_chunks=self._keep_chunks,
            place=self._place,
            folder=self._folder,
            scaled=self._scaled,
            report=self._reporter(sum(2 * len(part) - max(1, min(self._keep_chunks, len(part))) for part in spans)),
        )
        leaving: Mapping[Slot, State] = self._begin(batch)
        loss = torch.zeros((), dtype=torch.float64)
        fresh = self._fresh
        for part in spans:
            outcome = TwoPasses(self._model, batch, objective, part, options, fresh=fresh)(leaving)
            loss, leaving, fresh = loss + outcome.loss, outcome.leaving, None
        return self._over_ranks(loss, batch.device), leaving

    def _begin(self, batch: StreamBatch) -> dict[Slot, State]:
        if not self._stateful:
            return {}
        return {slot: tuple(part.to(batch.device) for part in state) for slot, state in self._carried.items()}

    def _scaled(self, loss: Tensor) -> Tensor:
        return loss if self._grad_scaler is None else self._grad_scaler.scale(loss)

    def _reporter(self, total: int) -> Callable[[], None]:
        if self._progress is None:
            return lambda: None
        progress, done = self._progress, iter(range(1, total + 1))
        return lambda: progress(next(done), total)

    def _over_ranks(self, loss: Tensor, device: torch.device) -> Tensor:
        loss = loss.to(device, torch.get_default_dtype())
        if self._group is not None:
            dist.all_reduce(loss, group=self._group)
            loss /= dist.get_world_size(self._group)
        return loss


def _check_count(name: str, value: int, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise LowtideError(
            what=f"{name}={value!r}",
            why="it counts time steps or chunks",
            fix=f"give a whole number of at least {least}",
        )


def _layout_of(model: nn.Module) -> bool:
    """Whether the model's layers take batches first."""
    found = {module.batch_first for module in model.modules() if isinstance(getattr(module, "batch_first", None), bool)}
    if len(found) != 1:
        said = "disagree about it" if found else "do not say"
        raise LowtideError(
            what=f"the layers of {type(model).__name__} {said} whether data are (B, T, ...) or (T, B, ...)",
            why="a stream cuts the data along time",
            fix="pass batch_first=True or batch_first=False",
        )
    return bool(found.pop())


def _sample(batch: StreamBatch) -> Sample:
    """A few steps of a few sequences, repeated where there are fewer."""
    time_axis = 1 if batch.batch_first else 0
    steps, sequences = min(SAMPLE_STEPS, batch.steps), min(SAMPLE_BATCH, batch.sequences)
    times = torch.arange(SAMPLE_STEPS) % steps
    head = cut(batch.inputs, 0, steps, batch_first=batch.batch_first, device=batch.device)

    def pick(leaf: Tensor) -> Tensor:
        few = leaf.narrow(1 - time_axis, 0, sequences)
        return few.index_select(time_axis, times.to(few.device)).detach()

    lengths = None if batch.lengths is None else torch.tensor([SAMPLE_STEPS, SAMPLE_STEPS // 2 + 1][:sequences])
    return Sample(map_leaves(pick, head), sequences, lengths, time_axis)


def _check_targets(batch: StreamBatch, *, per_step: bool) -> None:
    if per_step:
        size = size_of(batch.targets, batch_first=batch.batch_first, name="targets")
        if size[0] < batch.steps or size[1] != batch.sequences:
            raise LowtideError(
                what=f"the targets hold (steps, sequences) {size}, the inputs {batch.steps, batch.sequences}",
                why="the model gives one output a step, and the loss compares each with its target",
                fix="give one target for each step of the inputs, or end the model in lowtide.nn.Pool",
            )
        return
    wrong = [tuple(leaf.shape) for leaf in leaves(batch.targets) if tuple(leaf.shape[:1]) != (batch.sequences,)]
    if wrong:
        raise LowtideError(
            what=f"the targets hold a part of shape {wrong[0]}, and the batch has {batch.sequences} sequences",
            why="the model gives one output a sequence, and the loss compares each with its target",
            fix="give one target for each sequence",
        )
