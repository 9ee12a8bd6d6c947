"""A step's gradients, kept apart until the step is whole: then added to what was there, or dropped.

Chunks add to each parameter's .grad one after another. What was there before lies aside meanwhile, so that an
exception or Ctrl-C in between puts it back untouched, and so that data-parallel ranks exchange this step's share alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from lowtide.errors import LowtideError

_BUCKET_BYTES = 25 << 20
"""Gradients exchanged at once between ranks, as torch's DistributedDataParallel does."""


def towards(tensor: Tensor, seed: Tensor) -> Tensor:
    """A number whose gradient with respect to `tensor` is `seed`.

    Handing the seed itself to torch.autograd makes torch import its symbolic shapes: 46 MB for one product of tensors.
    """
    parts = [torch.view_as_real(part) if part.is_complex() else part for part in (tensor, seed)]
    return (parts[0] * parts[1]).sum()


@contextmanager
def gradients_of_step(parameters: Iterable[Tensor], group: dist.ProcessGroup | None) -> Iterator[None]:
    """Collect the block's gradients, then exchange them between the ranks of `group` and add them to those before.

    Args:
        parameters: All that may receive a gradient.
        group: The ranks of a data-parallel model, whose gradients are averaged; None for a model of its own.
    """
    own = [parameter for parameter in parameters if parameter.requires_grad]
    _refuse_early_hooks(own)
    before: list[Tensor | None] = [parameter.grad for parameter in own]
    try:
        for parameter in own:
            parameter.grad = None
        yield
        if group is not None:
            _average(own, group)
        _add_up(own, before)
    except BaseException:
        for parameter, old in zip(own, before, strict=True):
            parameter.grad = old
        raise


def averaged_over(loss: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The mean of a loss over the ranks of `group`."""
    if group is not None:
        dist.all_reduce(loss, group=group)
        loss /= dist.get_world_size(group)
    return loss


def _add_up(parameters: Sequence[Tensor], before: Sequence[Tensor | None]) -> None:
    """Add the gradients that are there now to those before, in these tensors where that can be."""
    sums, shares = [], []
    for parameter, old in zip(parameters, before, strict=True):
        share = parameter.grad
        if old is None:
            continue
        if share is not None and old.is_sparse and not share.is_sparse:
            parameter.grad = share + old
            continue
        parameter.grad = old
        if share is not None:
            sums.append(old)
            shares.append(share)
    if sums:
        torch._foreach_add_(sums, shares)


_HOOKS = ("_post_accumulate_grad_hooks", "_backward_hooks", "_in_backward_optimizers")
"""Where torch keeps what is to run when a parameter's gradient is there."""


def _refuse_early_hooks(parameters: Sequence[Tensor]) -> None:
    for parameter in parameters:
        if any(getattr(parameter, hooks, None) for hooks in _HOOKS):
            raise LowtideError(
                what=f"a parameter of shape {tuple(parameter.shape)} has a hook that runs when its gradient is there",
                why="chunk by chunk it would run on parts of the gradient, and an optimizer inside it take many steps",
                fix="remove the hook, and change the gradient or call the optimizer after the step",
            )


def _average(parameters: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Average the gradients over ranks, bucket by bucket; a rank without one counts as zero, as under torch's DDP."""
    device = parameters[0].device
    present = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8, device=device)
    dist.all_reduce(present, dist.ReduceOp.MAX, group=group)
    shared: list[Tensor] = []
    for parameter, anywhere in zip(parameters, present.tolist(), strict=True):
        if not anywhere:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        shared.append(parameter.grad)
    for bucket in _buckets(shared):
        _average_bucket(bucket, group)


def _average_bucket(bucket: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    ranks = dist.get_world_size(group)
    if bucket[0].is_sparse:
        (gradient,) = bucket
        dist.all_reduce(gradient, group=group)
        gradient.div_(ranks)
        return
    together = torch.cat([gradient.reshape(-1) for gradient in bucket])
    dist.all_reduce(together, group=group)
    together.div_(ranks)
    sizes = [gradient.numel() for gradient in bucket]
    for gradient, part in zip(bucket, torch.split(together, sizes), strict=True):
        gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Dense gradients of one type side by side, up to a size; sparse ones alone."""
    bucket: list[Tensor] = []
    filled = 0
    for gradient in gradients:
        size = gradient.numel() * gradient.element_size()
        if bucket and (
            gradient.is_sparse
            or bucket[0].is_sparse
            or gradient.dtype != bucket[0].dtype
            or filled + size > _BUCKET_BYTES
        ):
            yield bucket
            bucket, filled = [], 0
        bucket.append(gradient)
        filled += size
    if bucket:
        yield bucket
