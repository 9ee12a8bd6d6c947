"""What a step is called with, as a batch: checked, so that what does not fit is said before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.nn._lengths import Lengths, checked_lengths
from lowtide.step._batch import StepBatch
from lowtide.step._sequence import Data, leaves, size_of


def read_batch(
    inputs: Data,
    targets: Data,
    lengths: Lengths | None,
    weight: Any,  # noqa: ANN401 - a tensor, an array or a sequence of numbers
    *,
    batch_first: bool,
    device: torch.device,
    may_be_empty: bool,
) -> StepBatch:
    """A batch of these.

    Args:
        inputs: Tensors or arrays along time.
        targets: What belongs to them.
        lengths: Valid steps of each sequence.
        weight: What losses are multiplied by.
        batch_first: Whether sequences are axis 0 and time axis 1.
        device: Where the model runs.
        may_be_empty: Whether all sequences may have length 0, because other ranks have some that have not.

    Raises:
        LowtideError: They do not fit together, or there is nothing to learn from.
    """
    size = size_of(inputs, batch_first=batch_first, name="inputs")
    return batch_of(
        inputs,
        targets,
        lengths,
        weight,
        size=size,
        batch_first=batch_first,
        device=device,
        may_be_empty=may_be_empty,
    )


def batch_of(
    inputs: Data,
    targets: Data,
    lengths: Lengths | None,
    weight: Any,  # noqa: ANN401 - a tensor, an array or a sequence of numbers
    *,
    size: tuple[int, int],
    batch_first: bool,
    device: torch.device,
    may_be_empty: bool,
) -> StepBatch:
    """A batch of these, whose size is known; the other arguments are those of `read_batch`.

    Args:
        inputs: Tensors or arrays.
        targets: What belongs to them.
        lengths: Valid steps of each sequence.
        weight: What losses are multiplied by.
        size: The steps and the sequences of the inputs.
        batch_first: Whether sequences are axis 0 and time axis 1.
        device: Where the model runs.
        may_be_empty: Whether all sequences may have length 0.
    """
    steps, sequences = size
    if steps == 0 or sequences == 0:
        raise LowtideError(
            what=f"the inputs hold {steps} steps of {sequences} sequences",
            why="there is nothing to learn from",
            fix="leave empty batches out",
        )
    _refuse_gradients(inputs, targets)
    checked = None if lengths is None else checked_lengths(lengths, sequences=sequences, steps=steps)
    valid = steps if checked is None else int(checked.max())
    if valid == 0 and not may_be_empty:
        raise LowtideError(
            what="all sequences of the batch have length 0",
            why="the loss is a mean over valid steps",
            fix="leave such a batch out",
        )
    batch = StepBatch(
        inputs=inputs,
        targets=targets,
        steps=max(1, valid),
        sequences=sequences,
        lengths=checked,
        weight=None if weight is None else torch.as_tensor(weight).detach().to(device),
        batch_first=batch_first,
        device=device,
    )
    _check_weight(batch, steps)
    return batch


def targets_have_steps(batch: StepBatch) -> bool:
    """Whether the targets look like one for each step."""
    return all(_fits_steps(tuple(getattr(leaf, "shape", ())), batch) for leaf in leaves(batch.targets))


def check_fit(batch: StepBatch, *, per_step: bool) -> None:
    """Refuse targets and weights that are not of what the loss is of: steps, or sequences.

    Raises:
        LowtideError: They are of the other.
    """
    if per_step:
        size = size_of(batch.targets, batch_first=batch.batch_first, name="targets")
        if size[0] < batch.steps or size[1] != batch.sequences:
            raise LowtideError(
                what=f"the targets hold (steps, sequences) {size}, the inputs {batch.steps, batch.sequences}",
                why="the model gives one output a step, and the loss compares each with its target",
                fix="give one target for each step of the inputs, or end the model in lowtide.nn.Pool",
            )
        return
    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves(batch.targets)]
    wrong = [shape for shape in shapes if shape[:1] != (batch.sequences,)]
    if wrong:
        raise LowtideError(
            what=f"the targets hold a part of shape {wrong[0]}, and the batch has {batch.sequences} sequences",
            why="the model gives one output a sequence, and the loss compares each with its target",
            fix="give one target for each sequence",
        )
    check_weight_fit(batch, per_step=per_step)


def check_weight_fit(batch: StepBatch, *, per_step: bool) -> None:
    """Refuse weights of steps for a loss of sequences.

    Raises:
        LowtideError: They are of steps.
    """
    if not per_step and batch.weight is not None and batch.weight.dim() != 1:
        raise LowtideError(
            what=f"weight has shape {tuple(batch.weight.shape)}, one value a step",
            why="the model gives one output a sequence, and the loss has one value for each",
            fix="give one weight for each sequence",
        )


def _check_weight(batch: StepBatch, steps: int) -> None:
    """Refuse a weight that is of neither sequences nor steps, those of padding counted."""
    of_steps = replace(batch, steps=steps)
    of_steps_shape = of_steps.shape_of(of_steps.span)
    if batch.weight is not None and batch.weight.shape not in {(batch.sequences,), of_steps_shape}:
        raise LowtideError(
            what=f"weight has shape {tuple(batch.weight.shape)}",
            why=f"the batch has {batch.sequences} sequences, and {of_steps_shape} is one value a step",
            fix="give one weight for each sequence, or one for each step",
        )


def _fits_steps(shape: tuple[int, ...], batch: StepBatch) -> bool:
    if len(shape) < 2:  # noqa: PLR2004 - time and batch
        return False
    steps, sequences = (shape[1], shape[0]) if batch.batch_first else (shape[0], shape[1])
    return steps >= batch.steps and sequences == batch.sequences


def _refuse_gradients(inputs: Data, targets: Data) -> None:
    for name, data in (("inputs", inputs), ("targets", targets)):
        if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves(data)):
            raise LowtideError(
                what=f"the {name} require gradients",
                why="a step computes the parameters' gradients alone: those of the data would be as large as they",
                fix=f"give {name}.detach(), and make what computed them part of the model",
            )
