"""`breakdown`: what a model in training holds, part by part.

This tells where memory goes, not how high it rises: what the backward pass takes in passing is not in it. The peak is
what `watch` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lowtide.errors import LowtideError
from lowtide.memory.activations import kept_by_module
from lowtide.memory.breakdown_view import as_html, as_text
from lowtide.memory.held import held
from lowtide.memory.storages import Storages, tensors_in

if TYPE_CHECKING:
    import torch
    from torch import nn

Component = Literal[
    "parameters", "buffers", "gradients", "optimizer state", "batch", "activations", "prefetch ring", "runtime"
]


@dataclass(frozen=True)
class Part:
    """One line: so many bytes of one kind in one place."""

    component: Component
    name: str
    """Of activations the path of the module that keeps them, else the type of numbers, or words."""
    device: str
    bytes: int
    there: bool = True
    """Whether it is held now, or will be once training goes on."""


@dataclass(frozen=True)
class Breakdown:
    """All parts, in the order in which a table shows them. Memory that several share is in the first of them."""

    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The sum of all parts."""
        return sum(part.bytes for part in self.parts)

    def of(self, component: Component) -> int:
        """The sum of the parts of one component."""
        return sum(part.bytes for part in self.parts if part.component == component)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def breakdown(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    sample: Any = None,  # noqa: ANN401 - whatever the model takes
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
    *,
    ring_bytes: int = 0,
) -> Breakdown:
    """Account for what a PyTorch model holds in training.

    Gradients that are not there yet are counted as they will be. The state of an optimizer is there after its first
    step. Activations are found by one forward pass on the sample, which leaves no trace in the model.

    Args:
        model: The model, in the mode (training or not) in which it is to be looked at.
        optimizer: Whose state is counted.
        sample: A batch: inputs; or inputs and targets, as a tuple or as `.inputs` and `.targets`. Without one,
            activations are left out.
        loss_fn: Called with outputs and targets; what it keeps counts as well.
        ring_bytes: What a loader holds ready beside the batch in use: its `ring_bytes`.

    Raises:
        LowtideError: There is a loss, and a sample without targets.
    """
    inputs, targets = _inputs_and_targets(sample, with_targets=loss_fn is not None)
    storages = Storages()
    parts = [
        *_parts("parameters", model.parameters(), storages),
        *_parts("buffers", model.buffers(), storages),
        *_gradients(model, storages),
        *_parts("optimizer state", tensors_in(dict(optimizer.state) if optimizer else {}), storages),
        *_parts("batch", tensors_in((inputs, targets)), storages),
    ]
    runtime = list(_runtime(parts))
    if sample is not None:

        def run() -> object:
            outputs = model(inputs)
            return outputs if loss_fn is None else loss_fn(outputs, targets)

        kept = kept_by_module(model, run, storages)
        parts += [Part("activations", path, device, size) for (path, device), size in kept.items()]
    if ring_bytes:
        parts.append(Part("prefetch ring", "batches made ahead", "cpu", ring_bytes, there=False))
    return Breakdown((*parts, *runtime))


def _parts(component: Component, tensors: Iterable[torch.Tensor], storages: Storages) -> list[Part]:
    """One part for each type of numbers on each device."""
    sizes: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        for plain, size in storages.count(tensor):
            place = (str(plain.dtype).removeprefix("torch."), str(plain.device))
            sizes[place] = sizes.get(place, 0) + size
    return [Part(component, name, device, size) for (name, device), size in sizes.items()]


def _gradients(model: nn.Module, storages: Storages) -> list[Part]:
    """Those that are there, and those that the next backward pass makes."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    there = _parts("gradients", (one.grad for one in wanted if one.grad is not None), storages)
    sizes: dict[tuple[str, str], int] = {}
    for one in wanted:
        if one.grad is None:
            place = (str(one.dtype).removeprefix("torch."), str(one.device))
            sizes[place] = sizes.get(place, 0) + one.numel() * one.element_size()
    return there + [Part("gradients", name, device, size, there=False) for (name, device), size in sizes.items()]


def _runtime(parts: list[Part]) -> Iterator[Part]:
    """What is held beside the parts that are there: on the host, and in torch's allocator on each GPU."""
    accounted = sum(part.bytes for part in parts if part.device == "cpu" and part.there)
    yield Part("runtime", "interpreter, libraries, free blocks", "cpu", max(0, held() - accounted))
    for device in sorted({part.device for part in parts if part.device.startswith("cuda")}):
        import torch  # noqa: PLC0415 - this part loads no framework by itself

        free = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        yield Part("runtime", "free blocks of the allocator", device, free)


def _inputs_and_targets(sample: Any, *, with_targets: bool) -> tuple[Any, Any]:  # noqa: ANN401 - as the model takes it
    if hasattr(sample, "inputs"):
        inputs, targets = sample.inputs, getattr(sample, "targets", None)
    elif isinstance(sample, (tuple, list)) and len(sample) == 2:  # noqa: PLR2004 - inputs and targets
        inputs, targets = sample
    else:
        inputs, targets = sample, None
    if with_targets and targets is None:
        raise LowtideError(
            what="breakdown was given a loss, and no targets to compute it with",
            why="what the loss keeps for the backward pass would be missing from the activations",
            fix="pass sample=(inputs, targets), or leave loss_fn out",
        )
    return inputs, targets
