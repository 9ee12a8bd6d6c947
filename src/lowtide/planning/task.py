"""What is planned, but for the data: a model, its loss and optimizer, and the budget, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide.errors import LowtideError
from lowtide.memory.allocator import AllocatorReport, settle_allocator, switched_on
from lowtide.memory.cuda_allocator import settle_cuda_allocator
from lowtide.nn._layer import LeanLayer
from lowtide.planning.budget import Budget, read_budget
from lowtide.planning.circumstances import circumstances, fingerprint
from lowtide.planning.manner import Manner
from lowtide.planning.subject import Factory, Subject
from lowtide.planning.workload import Workload

_PRECISIONS = ("float32", "bfloat16")
_CHUNKS = (512, 128, 32)
"""Chunk lengths of streams that are looked at."""


@dataclass(frozen=True)
class Task:
    """A model to be trained inside a budget."""

    model: nn.Module
    loss_fn: Any
    optimizer: Optimizer
    budget: Budget
    precision: str
    device: torch.device
    allocator: AllocatorReport
    factory: Factory | None

    @staticmethod
    def of(
        model: nn.Module,
        loss_fn: Any,  # noqa: ANN401 - a function or a module
        optimizer: Optimizer,
        *,
        budget: int | str | None,
        precision: str,
        device: torch.device | str | None,
        factory: Factory | None,
    ) -> Task:
        """Check what belongs together, and settle the allocator as it will be in probes.

        Raises:
            LowtideError: Something is not as it must be.
        """
        if precision not in _PRECISIONS:
            raise LowtideError(
                what=f"precision={precision!r}",
                why="it says what forwards compute in",
                fix=f"give one of {', '.join(map(repr, _PRECISIONS))}",
            )
        where = _device_of(model, device)
        known = {id(one) for one in model.parameters()}
        if not any(id(one) in known for group in optimizer.param_groups for one in group["params"]):
            raise LowtideError(
                what="the optimizer holds none of the model's parameters",
                why="its state is part of what training takes",
                fix="make it of model.parameters()",
            )
        allocator = settle_allocator()
        if where.type == "cuda" and switched_on():
            settle_cuda_allocator()
        return Task(model, loss_fn, optimizer, read_budget(budget, where), precision, where, allocator, factory)

    def fitted(self, workload: Workload) -> Workload:
        """The workload as it is on this device, with a ring that fits."""
        if self.device.type == "cuda":
            return replace(workload, ring_bytes=0, on_device=False)
        return workload.with_ring_in(self.budget.left)

    def subject(self, workload: Workload) -> Subject:
        """What a probe is given."""
        return Subject(self.model, self.loss_fn, self.optimizer, workload.pattern, self.precision)

    def fingerprint(self, workload: Workload) -> str:
        """A name for everything that decides the plan but the budget."""
        return fingerprint(
            self.model, self.loss_fn, self.optimizer, workload, precision=self.precision, around=self.around
        )

    @property
    def around(self) -> dict[str, str | int]:
        """What the figures belong to."""
        return circumstances(self.device, self.allocator)

    @property
    def settled(self) -> bool:
        """Whether malloc's threshold is fixed, and a GPU's allocator settled."""
        return self.allocator.mmap_threshold is not None

    @property
    def copies_for_foreach(self) -> bool:
        """Whether the optimizer works on all parameters at once, in copies of them."""
        groups = [group.get("foreach", False) for group in self.optimizer.param_groups]
        return any(one or (one is None and self.device.type == "cuda") for one in groups)

    @property
    def parameters(self) -> int:
        """Numbers in the model."""
        return sum(one.numel() for one in self.model.parameters())

    @property
    def parameter_bytes(self) -> int:
        """Of all parameters that are trained: their gradients take as much."""
        return sum(one.numel() * one.element_size() for one in self.model.parameters() if one.requires_grad)

    def is_sequential(self, workload: Workload) -> bool:
        """Whether the model runs on fewer steps than the data have."""
        recurrent = any(isinstance(one, (nn.RNNBase, LeanLayer)) for one in self.model.modules())
        return recurrent or workload.varies or workload.pattern.has_lengths

    def whole_manners(self) -> list[Manner]:
        """The ways of running whole sequences, those that keep most first."""
        layers = [one for one in self.model.modules() if isinstance(one, LeanLayer)]
        if not layers:
            return [Manner(None)]
        found = [Manner("gates"), Manner("outputs")]
        if any(one.num_layers > 1 and not one.bidirectional for one in layers):
            found.append(Manner("boundaries"))
        return found

    def stream_manners(self, workload: Workload) -> list[Manner]:
        """The ways of running chunk by chunk; none where sequences are too short."""
        if not self.is_sequential(workload):
            return []
        return [Manner(None, steps) for steps in _CHUNKS if steps < workload.longest]


def _device_of(model: nn.Module, asked: torch.device | str | None) -> torch.device:
    found = {one.device for one in model.parameters()} or {torch.device("cpu")}
    lies = next(iter(found))
    if len(found) > 1 or not (asked is None or _names(asked, lies)):
        raise LowtideError(
            what=f"the model lies on {', '.join(sorted(map(str, found)))}, and device is {asked!r}",
            why="probes run the model where it is",
            fix="move it there first, with model.to(device), or leave device out",
        )
    return lies


def _names(asked: torch.device | str, lies: torch.device) -> bool:
    """Whether a device is the one that is asked for: of its kind, and of its number where one is asked for."""
    try:
        wanted = torch.device(asked)
    except RuntimeError:  # torch knows no such kind
        return False
    return wanted.type == lies.type and wanted.index in (None, lies.index or 0)
