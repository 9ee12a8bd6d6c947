"""A step where it is used: in inference mode, compiled, scripted, data-parallel, with data and buffers of all kinds."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn.losses import cross_entropy, mse
from tests.step.models import CLASSES, INPUTS, Tagger, gradients, per_step_loss, relative_error, whole_loss

STEPS = 23


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(STEPS, 3, INPUTS, dtype=dtype), torch.randint(CLASSES, (STEPS, 3))


def expected_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    whole_loss(model, inputs, targets).backward()  # type: ignore[no-untyped-call] # torch ships it so
    return gradients(model)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_wherever_it_is_called(
    mode: Callable[[], AbstractContextManager[None]], *, scaled: bool
) -> None:
    model, (inputs, targets) = Tagger().double(), drawn()
    expected = expected_of(model, inputs, targets)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0) if scaled else None
    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=7, grad_scaler=scaler)
    with mode():
        loss = step(inputs + 0, targets + 0)  # made here
    assert relative_error(gradients(model), expected) < 1e-12
    assert not loss.requires_grad
    assert loss.dtype == torch.float64


def compile_whole(model: nn.Module) -> nn.Module:
    compiled: nn.Module = torch.compile(model, backend="eager")  # type: ignore[assignment]
    return compiled


def compile_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compile_layers(model: nn.Module) -> nn.Module:
    assert isinstance(model, Tagger)
    model.layers.compile(backend="eager")
    model.head = torch.compile(model.head, backend="eager")  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("compiled", [compile_whole, compile_in_place, compile_layers])
def test_compiled_parts_run_uncompiled(compiled: Callable[[nn.Module], nn.Module]) -> None:
    model, (inputs, targets) = Tagger().double(), drawn()
    expected = list(expected_of(model, inputs, targets).values())
    lowtide.StreamStep(compiled(model), per_step_loss, chunk_steps=7)(inputs, targets)
    found = list(gradients(model).values())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_half_precision_inputs_under_autocast() -> None:
    model, (inputs, targets) = Tagger(), drawn(torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        given = inputs.to(dtype)
        with torch.autocast("cpu", torch.bfloat16):
            loss = whole_loss(model, given, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        expected = gradients(model)
        with torch.autocast("cpu", torch.bfloat16):
            lowtide.StreamStep(model, per_step_loss, chunk_steps=7)(given, targets)
        assert relative_error(gradients(model), expected) < 0.03


def test_scripted_parts_are_taken() -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(INPUTS, CLASSES)
            self.head = torch.jit.script(nn.Sequential(nn.Linear(CLASSES, CLASSES), nn.ReLU()))

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.head(self.layers(x)[0])
            return outputs

    model, (inputs, targets) = Scripted().double(), drawn()
    expected = expected_of(model, inputs, targets)
    lowtide.StreamStep(model, per_step_loss, chunk_steps=7)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


class Buffered(nn.Module):
    """Registers one buffer late, replaces another, and counts in a third."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(INPUTS, CLASSES)
        self.register_buffer("mask", torch.ones(0))
        self.register_buffer("calls", torch.zeros(()))
        self.mask: Tensor
        self.calls: Tensor
        self.late: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if "late" not in self._buffers:
            self.register_buffer("late", torch.zeros(()))
        self.late += 1
        self.calls += 1
        if len(self.mask) != len(x):
            self.mask = torch.ones(len(x), 1, 1)
        outputs: Tensor = self.layers(x * self.mask)[0]
        return outputs


def test_buffers_are_as_if_the_model_had_not_been_tried() -> None:
    model, (inputs, targets) = Buffered(), drawn(torch.float32)
    lowtide.StreamStep(model, per_step_loss, chunk_steps=STEPS)(inputs, targets)
    assert float(model.calls) == float(model.late) == 1
    model = Buffered()
    with pytest.raises(lowtide.LowtideError, match="loss"):
        lowtide.StreamStep(model, lambda o, t: per_step_loss(o, t).sum())(inputs, targets)
    assert float(model.calls) == len(model.mask) == 0
    assert set(model._buffers) == {"mask", "calls"}  # noqa: SLF001


def test_weights_and_arrays_of_any_kind() -> None:
    model, (inputs, targets) = Tagger(), drawn(torch.float32)
    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=7)
    step(inputs, targets, weight=torch.tensor([1.0, 0.5, 0.0]))
    expected = gradients(model)
    for weight in (np.array([1.0, 0.5, 0.0], np.float32), [1.0, 0.5, 0.0]):
        step(inputs.numpy().astype(">f4"), targets.numpy(), weight=weight)
        assert relative_error(gradients(model), expected) < 1e-6


def test_a_tuple_goes_to_as_many_arguments_as_there_are() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(2 * INPUTS, CLASSES)

        def forward(self, left: Tensor, right: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
            assert lengths is not None
            right = torch.zeros_like(left) if right is None else right
            outputs: Tensor = self.layers(torch.cat([left, right], -1))[0]
            return outputs

    class AnyNumber(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(2 * INPUTS, CLASSES)

        def forward(self, *parts: Tensor) -> Tensor:
            outputs: Tensor = self.layers(torch.cat(parts, -1))[0]
            return outputs

    torch.manual_seed(0)
    model, (inputs, targets) = Optional().double(), drawn()
    of_any = AnyNumber().double()
    of_any.load_state_dict(model.state_dict())
    per_step_loss(of_any(inputs, 2 * inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(of_any)
    for module, given in (
        (model, (inputs, 2 * inputs)),
        (model, {"left": inputs, "right": 2 * inputs}),
        (of_any, (inputs, 2 * inputs)),
    ):
        lowtide.StreamStep(module, per_step_loss, chunk_steps=7)(given, targets)
        assert relative_error(gradients(module), expected) < 1e-12


def test_inputs_that_the_forward_does_not_take_are_refused_with_its_signature() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(INPUTS, CLASSES)

        def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
            outputs: Tensor = self.layers(x + y + z)[0]
            return outputs

    inputs, targets = drawn(torch.float32)
    with pytest.raises(lowtide.LowtideError, match=r"forward\(x, y, z\) cannot be called"):
        lowtide.StreamStep(Three(), per_step_loss)((inputs, inputs), targets)


def test_a_sparse_gradient_that_was_there_before_takes_a_dense_one() -> None:
    model, (inputs, targets) = Tagger().double(), drawn()
    expected = expected_of(model, inputs, targets)
    model.head.weight.grad = torch.ones_like(model.head.weight).to_sparse(1)
    lowtide.StreamStep(model, per_step_loss, chunk_steps=7)(inputs, targets)
    found = gradients(model)
    found["head.weight"] = found["head.weight"] - 1
    assert relative_error(found, expected) < 1e-12


def test_a_step_can_be_pickled() -> None:
    model, (inputs, targets) = Tagger().double(), drawn()
    expected = expected_of(model, inputs, targets)
    step = pickle.loads(pickle.dumps(lowtide.StreamStep(model, cross_entropy, chunk_steps=7)))  # noqa: S301 - made here
    step(inputs, targets)
    assert relative_error(gradients(step._model.module), expected) < 1e-12  # noqa: SLF001 - its own copy


def test_a_module_may_work_in_place_on_what_it_takes_up() -> None:
    class Total(nn.Module):
        def __init__(self, *, in_place: bool) -> None:
            super().__init__()
            self.front = nn.Linear(INPUTS, INPUTS)
            self.in_place = in_place

        def forward(self, x: Tensor) -> Tensor:
            (total,) = lowtide.nn.carry_in(self, (x.new_zeros(x.shape[1:]),))
            rows = []
            for row in self.front(x):
                rows.append(total.clone() if self.in_place else total)
                total = total.add_(row) if self.in_place else total + row
            lowtide.nn.carry_out(self, (total,))
            return torch.stack(rows)

    inputs, targets = drawn()[0], torch.randn(STEPS, 3, INPUTS, dtype=torch.float64)
    models = [Total(in_place=in_place).double() for in_place in (True, False)]
    models[1].load_state_dict(models[0].state_dict())
    found = []
    for model in models:
        step = lowtide.StreamStep(model, mse, chunk_steps=7, stateful=True, batch_first=False)
        step(inputs, targets)
        step(inputs, targets)
        found.append(gradients(model))
    assert relative_error(*found) < 1e-12


RANKS = """
import os, sys, torch, torch.distributed as dist
import lowtide
from tests.step.models import *

rank, file, compiled = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "compiled"
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(0)
model = Tagger().double()
inputs, targets = torch.randn(23, 4, INPUTS, dtype=torch.float64), torch.randint(CLASSES, (23, 4))
lengths = torch.tensor([0, 0, 23, 4])
whole_loss(model, inputs, targets, lengths=lengths).backward()
expected = gradients(model)
inner = torch.compile(model, backend="eager") if compiled else model
step = lowtide.StreamStep(torch.nn.parallel.DistributedDataParallel(inner), per_step_loss, chunk_steps=4)
own = slice(2 * rank, 2 * rank + 2)
for _ in range(2):
    loss = step(inputs[:, own], targets[:, own], lengths=lengths[own])
found = {name: gradient / 2 for name, gradient in gradients(model).items()}
assert relative_error(found, expected) < 1e-12, relative_error(found, expected)
assert abs(float(loss) - float(whole_loss(model, inputs, targets, lengths=lengths).detach())) < 1e-6
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a process that ends by itself
"""


@pytest.mark.parametrize("compiled", ["plain", "compiled"])
def test_a_rank_whose_sequences_are_all_empty_takes_part(compiled: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANKS]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting"), compiled], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
