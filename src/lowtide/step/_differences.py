"""Where two runs of a model come apart: the first module whose outputs or whose parameters' gradients differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError
from lowtide.nn._context import BatchContext, running
from lowtide.step._agreement import Agreement
from lowtide.step._gradients import towards
from lowtide.step._trace import Trace

_INPUTS, _OUTPUTS = 0, 1
_GOLDEN = 0.6180339887


def first_difference(trace: Trace, agrees: Callable[[tuple[str, int], int], bool]) -> str:
    """The path of the first module whose outputs differ; of the one around it where its inputs differ already.

    Args:
        trace: All calls of one of the runs.
        agrees: Whether the other run agrees on a call's inputs (0) or outputs (1).
    """
    for key in trace:
        if not agrees(key, _OUTPUTS):
            return key[0] if agrees(key, _INPUTS) else key[0].rpartition(".")[0]
    return ""


def first_gradient_difference(
    module: nn.Module,
    ours: Sequence[Tensor],
    theirs: Sequence[Tensor],
    agreement: Agreement,
    *,
    contexts: tuple[BatchContext, BatchContext] = (BatchContext(), BatchContext()),
) -> str | None:
    """The path of the first module with a parameter whose gradients differ; None where all agree.

    Args:
        module: What was run.
        ours: Outputs of one run.
        theirs: Those of the other.
        agreement: When gradients are equal.
        contexts: What is in force while each is differentiated, for forwards that are computed again there.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    gradients = []
    for tensors, context in zip((ours, theirs), contexts, strict=True):
        with running(context):
            gradients.append(_gradients(tensors, [one for _, one in named]))
    for (name, _), agrees in zip(named, agreement.gradients(*gradients), strict=True):
        if not agrees:
            return str(name).rpartition(".")[0]
    return None


def _gradients(tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    roots = [tensor for tensor in tensors if tensor.requires_grad]
    if not roots or not parameters:
        return [None] * len(parameters)
    try:
        with torch.autocast(roots[0].device.type, enabled=False):
            together = [towards(root, _cotangent(root)) for root in roots]
            found = torch.autograd.grad(together, parameters, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise LowtideError(
            what=f"the backward pass of the model fails inside of a step: {str(error).splitlines()[0]}",
            why="what torch.utils.checkpoint computes again there knows no carried states, and on a GPU no lengths",
            fix="leave out the checkpointing around lean layers: they keep little, and a stream but one chunk",
        ) from error
    return list(found)


def _cotangent(like: Tensor) -> Tensor:
    """Numbers between 1/4 and 5/4 without a pattern, and without drawing any."""
    places = torch.arange(like.numel(), dtype=torch.float64) * _GOLDEN
    return (places.frac() + 0.25).view(like.shape).to(like.device, like.dtype)
