"""One optimizer step's gradients as a plan says: the batch cut into micro-batches, whole or streamed, and exact."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lowtide.data.batch import Batch
from lowtide.errors import LowtideError
from lowtide.step import _refusals
from lowtide.step._batch import StepBatch
from lowtide.step._check import check_streamable
from lowtide.step._effective import read_effective
from lowtide.step._given import read_form
from lowtide.step._gradients import averaged_over, gradients_of_step
from lowtide.step._layout import layout_of
from lowtide.step._loss import LossFunction, StepLoss
from lowtide.step._loss_check import leaves_of
from lowtide.step._micro_batches import micro_batches
from lowtide.step._model import StreamedModel
from lowtide.step._objective import Objective, find_divisor
from lowtide.step._passes import Options, run_windows
from lowtide.step._plain_autograd import plain_autograd
from lowtide.step._precision import Precision
from lowtide.step._reading import check_fit, check_weight_fit
from lowtide.step._rows_check import check_rows
from lowtide.step._scaling import scaled_by
from lowtide.step._sequence import size_of
from lowtide.step._verdicts import Verdicts, circumstances
from lowtide.step._whole import WholeRun
from lowtide.step._whole_check import check_whole, whole_sample_steps
from lowtide.step._wrappers import unwrapped
from lowtide.step.choice import Choice, StepPlan


class PlannedStep:
    """Adds to every parameter's .grad what the effective batch at once would, in the memory that a plan allows.

    ```python
    step = lowtide.PlannedStep(model, lowtide.nn.losses.cross_entropy, plan)
    for batch in loader:
        optimizer.zero_grad()
        loss = step(batch)
        optimizer.step()
    ```

    The plan says for each length how many sequences run at once, what lean layers keep, and whether sequences run whole
    or in chunks. However a batch is divided, each valid step (or each sequence, where the loss gives one value a
    sequence) counts as in the undivided one. Sequences of like lengths run together, cut to their own longest one.

    Whole sequences may go through any model. Where lengths differ, or a batch is cut, it is tried on a few rows of the
    data first, and refused where padding or other sequences change what it makes of one. What is streamed obeys the
    rules of `StreamStep`. Under DistributedDataParallel gradients are exchanged once a step, and the loss is the mean
    over all ranks. Random modules of torch draw anew for each micro-batch. What is compiled by torch.compile runs
    uncompiled here.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        plan: StepPlan,
        *,
        batch_first: bool | None = None,
        scratch: Path | str | None = None,
        grad_scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        """Prepare steps; nothing runs yet.

        Args:
            model: What is trained. Its outputs are tensors, or tuples, lists, dictionaries or dataclasses of them.
            loss_fn: From outputs and targets to a loss per step, in the layout of the data, or per sequence, (B,).
            plan: How batches are run.
            batch_first: Whether data are (B, T, ...) rather than (T, B, ...); a `Batch` knows by itself. None: as the
                model's layers say, and batches first where none says it.
            scratch: A folder on disk for what streams put there; None for the system's.
            grad_scaler: Scales losses before they are differentiated; the loss returned is not scaled.

        Raises:
            LowtideError: The plan's choices are none, or not ascending, or its precision is not known.
        """
        self.follow(plan)
        module, self._group = unwrapped(model)
        self._modules = [module] + ([loss_fn] if isinstance(loss_fn, nn.Module) else [])
        self._model = StreamedModel(module)
        self._loss = StepLoss(loss_fn)
        self._batch_first = batch_first
        self._scratch = None if scratch is None else Path(scratch)
        self._grad_scaler = grad_scaler
        in_chunks = partial(check_streamable, self._model, self._loss, parameters_of=self._modules, stateful=False)
        self._in_chunks = Verdicts(self._model, self._modules, in_chunks)
        with_padding = partial(check_whole, self._model, self._loss, parameters_of=self._modules)
        self._with_padding = Verdicts(self._model, self._modules, with_padding, whole_sample_steps)
        self._divisible: set[Hashable] = set()
        """Circumstances in which the model was seen to treat sequences by themselves."""
        self._outside: dict[Hashable, tuple[Tensor, ...]] = {}
        """What the loss differentiates besides the parameters that are known, by circumstances."""

    def __call__(self, batch: Batch | Sequence[Any] | Mapping[str, Any]) -> Tensor:
        """Add an effective batch's gradients to every parameter's .grad, and return its loss.

        Args:
            batch: A `lowtide.data.Batch`, (inputs, targets[, lengths[, weight]]), or a mapping with these names: what
                the model takes, what `loss_fn` takes, valid steps of each sequence (None: all), and what each step's
                or sequence's loss is multiplied by. `Batch.static` goes to the forward's argument of that name, if it
                has one.

        Raises:
            LowtideError: Something is not as it must be. Every .grad is then as before the call, as it is after any
                other exception and Ctrl-C.
        """
        effective = self._read(batch)
        choice = self._choice_for(effective.steps)
        parts = micro_batches(effective, choice.rows)
        with plain_autograd():
            if choice.chunk_steps is None:
                return self._run_whole(effective, parts, choice)
            return self._run_in_chunks(effective, parts, choice, choice.chunk_steps)

    def follow(self, plan: StepPlan) -> None:
        """Run batches by another plan from now on; what was found out about the model stays known.

        Raises:
            LowtideError: The plan's choices are none, or not ascending, or its precision is not known.
        """
        self._choices = _checked_choices(plan.choices)
        self._precision = Precision(plan.precision)

    def _read(self, batch: object) -> StepBatch:
        given, module = read_form(batch), self._model.module
        batch_first = self._batch_first if given.batch_first is None else given.batch_first
        return read_effective(
            given,
            batch_first=layout_of(module, unsaid=True) if batch_first is None else batch_first,
            device=next((parameter.device for parameter in module.parameters()), torch.device("cpu")),
            may_be_empty=self._group is not None,
        )

    def _choice_for(self, steps: int) -> Choice:
        for choice in self._choices:
            if steps <= choice.steps:
                return choice
        raise LowtideError(
            what=f"the batch has {steps} steps, and the plan is for at most {self._choices[-1].steps}",
            why="what longer sequences need was not counted when the plan was made",
            fix="plan with the lengths that occur, or have the loader cut longer sequences with max_length",
        )

    def _run_whole(self, effective: StepBatch, parts: Sequence[StepBatch], choice: Choice) -> Tensor:
        with self._precision.on(effective.device):
            key = circumstances(self._modules, effective)
            if len(parts) > 1 and key not in self._divisible:
                _refuse_batch_norm(self._model.module)
                check_rows(self._model, effective, parameters_of=self._modules)
                self._divisible.add(key)
            has_time = None if effective.lengths is None else self._with_padding.on(effective).has_time
        scaled = scaled_by(self._grad_scaler)
        run = WholeRun(self._model, self._loss, choice.keep, self._precision, scaled, has_time)
        held = [run.values(parts[0], check=key not in self._outside)]
        per_step = self._loss.is_per_step(
            held[0], parts[0].shape_of(parts[0].span), parts[0].sequences, has_time=has_time
        )
        check_weight_fit(effective, per_step=per_step)
        divisor = find_divisor(
            self._loss, [(part, [part.span]) for part in parts], per_step=per_step, group=self._group
        )
        loss_type = torch.promote_types(held[0].dtype, torch.float32)
        with gradients_of_step(self._differentiated(key, held[0]), self._group):
            loss = run.differentiate(parts[0], held.pop(), per_step=per_step, divisor=divisor)
            for part in parts[1:]:
                # In one expression: nothing of a micro-batch has a name that outlives it.
                loss += run.differentiate(part, run.values(part), per_step=per_step, divisor=divisor)
        return averaged_over(loss.to(loss_type), self._group)

    def _run_in_chunks(
        self, effective: StepBatch, parts: Sequence[StepBatch], choice: Choice, chunk_steps: int
    ) -> Tensor:
        if effective.static is not None and self._model.signature.takes_static:
            raise _refusals.has_static()
        size_of(effective.inputs, batch_first=effective.batch_first, name="inputs")
        options = Options(
            keep_chunks=choice.keep_chunks,
            keep=choice.keep or "gates",
            place="auto",
            folder=self._scratch,
            scaled=scaled_by(self._grad_scaler),
            report=lambda: None,
        )
        with self._precision.on(effective.device):
            verdict = self._in_chunks.on(effective)
            check_fit(effective, per_step=verdict.per_step)
            spans = [part.span.cut(chunk_steps) for part in parts]
            counted = zip(parts, spans, strict=True)
            divisor = find_divisor(self._loss, counted, per_step=verdict.per_step, group=self._group)
            loss = torch.zeros((), dtype=torch.float64)
            with gradients_of_step(dict.fromkeys([*self._parameters(), *verdict.outside]), self._group):
                for part, chunks in zip(parts, spans, strict=True):
                    objective = Objective(self._loss, part, verdict.per_step, divisor)
                    outcome = run_windows(self._model, part, objective, [chunks], options, sources=verdict.sources)
                    loss += outcome.loss
        return averaged_over(loss.to(effective.device, verdict.loss_type), self._group)

    def _differentiated(self, key: Hashable, values: Tensor) -> list[Tensor]:
        """All tensors that receive a gradient."""
        known = self._parameters()
        if key not in self._outside:
            self._outside[key] = tuple(leaf for leaf in leaves_of(values) if leaf not in known)
        return [*known, *self._outside[key]]

    def _parameters(self) -> dict[Tensor, None]:
        return dict.fromkeys(parameter for module in self._modules for parameter in module.parameters())


def _checked_choices(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    steps = [choice.steps for choice in choices]
    if not steps or steps != sorted(set(steps)):
        raise LowtideError(
            what=f"the plan has choices for at most {steps} steps" if steps else "the plan has no choices",
            why="a batch is run by the first choice that is for as many steps as it has",
            fix="give at least one choice, each for more steps than the one before",
        )
    return tuple(choices)


def _refuse_batch_norm(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            raise _refusals.sees_other_sequences(model, path)
