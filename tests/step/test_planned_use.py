"""A planned step where it is used: batches in every form, data of a fixed size, autocast, scalers, ranks, failures."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.data import Batch
from lowtide.nn.losses import cross_entropy, mse
from tests.step.models import gradients, relative_error
from tests.step.planned_cases import CLASSES, INPUTS, Data, Labels, planned, undivided

DATA = Data((4, 9, 2, 7, 1), weights="step")
CHUNKS = pytest.mark.parametrize("chunk_steps", [None, 3])


def as_batch(data: Data, *, told: bool = True, arrays: bool = False) -> Batch:
    parts = dict(data.tensors)
    if arrays:
        parts = {name: None if part is None else part.numpy() for name, part in parts.items()}
    steps = data.tensors["inputs"].shape[1 if data.batch_first else 0]
    return Batch(
        **parts,
        index=None,
        start=None,
        steps=steps if told else 0,
        batch_first=data.batch_first,
        per_step=frozenset({"inputs", "targets"}) if told else frozenset(),
    )


FORMS: dict[str, Callable[[Data], object]] = {
    "tuple": lambda data: data.batch(),
    "list": lambda data: list(data.batch()),
    "mapping": lambda data: dict(data.tensors),
    "batch": as_batch,
    "batch that tells nothing": lambda data: as_batch(data, told=False),
    "batch of arrays": lambda data: as_batch(data, arrays=True),
    "arrays": lambda data: tuple(part.numpy() for part in data.batch()),
    "inputs by name": lambda data: ({"x": data.tensors["inputs"]}, *data.batch()[1:]),
}


@CHUNKS
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_batches_in_every_form(form: str, batch_first: bool, chunk_steps: int | None) -> None:
    data = Data(DATA.lengths, weights="step", batch_first=batch_first)
    model = lowtide.lean(Labels(batch_first=batch_first).double())
    expected_loss, expected = undivided(model, data)
    step = lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=chunk_steps))
    assert float(step(FORMS[form](data))) == pytest.approx(float(expected_loss))  # type: ignore[arg-type]
    assert relative_error(gradients(model), expected) < 1e-12


@CHUNKS
def test_mapped_files_are_read(chunk_steps: int | None, tmp_path: Path) -> None:
    data, model = Data((4, 9, 2, 7, 1)), lowtide.lean(Labels().double())
    _, expected = undivided(model, data)
    inputs, targets, lengths, _ = data.batch()
    np.save(tmp_path / "inputs.npy", inputs.numpy())
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=chunk_steps))((mapped, targets, lengths))
    assert relative_error(gradients(model), expected) < 1e-12


def test_batches_of_a_store(tmp_path: Path) -> None:
    rows = [{"id": number, "x": np.full((number + 1, INPUTS), number / 9), "y": number / 5} for number in range(9)]
    store = lowtide.ingest(iter(rows), tmp_path / "store", inputs=["x"], label="y")
    loader = store.loader(batch_size=9, seed=0, dtypes={"x": "float64", "y": "float64"})
    model = lowtide.lean(Labels(pool="mean", batch_first=True).double())

    def first_output(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square()

    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        outputs = model(torch.tensor(row["x"])[None])
        total = total + (outputs[0, 0] - row["y"]).square() / 9
    total.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    for rows_at_once in (9, 2):
        (batch,) = list(loader)
        loss = lowtide.PlannedStep(model, first_output, planned(rows_at_once))(batch)
        assert float(loss) == pytest.approx(float(total.detach()))
        assert relative_error(gradients(model), expected) < 1e-6, "stored in float32"


class Picture(nn.Module):
    """One output an image."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.front = nn.Conv2d(3, 4, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.front(x)).relu().mean((2, 3)))
        return logits


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, outputs))


@pytest.mark.parametrize("rows", [1, 3, 10])
@pytest.mark.parametrize("outputs", [2, 3, 7, 10])
@pytest.mark.parametrize("kind", ["features", "images", "numbers"])
def test_data_of_a_fixed_size(kind: str, outputs: int, rows: int) -> None:
    torch.manual_seed(0)
    model = {
        "features": mlp(outputs),
        "images": Picture(outputs),
        "numbers": nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, outputs)),
    }[kind].double()
    inputs = {
        "features": torch.randn(10, 7, dtype=torch.float64),
        "images": torch.randn(10, 3, 6, 6, dtype=torch.float64),
        "numbers": torch.randint(9, (10,)),
    }[kind]
    weight = torch.rand(10, dtype=torch.float64)
    for loss_fn, targets in (
        (mse, torch.randn(10, outputs, dtype=torch.float64)),
        (nn.MSELoss(), torch.randn(10, outputs, dtype=torch.float64)),
        (cross_entropy, torch.randint(outputs, (10,))),
    ):
        predicted = model(inputs)
        if loss_fn is cross_entropy:
            values = F.cross_entropy(predicted, targets, reduction="none")
        else:
            values = (predicted - targets).square().mean(-1)
        expected_loss = (values * weight).mean()
        expected_loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
        expected = gradients(model)
        step = lowtide.PlannedStep(model, loss_fn, planned(rows))
        assert float(step({"inputs": inputs, "targets": targets, "weight": weight})) == pytest.approx(
            float(expected_loss.detach())
        )
        assert relative_error(gradients(model), expected) < 1e-12


class Wishing(nn.Module):
    """Takes lengths and what is given once a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(INPUTS, 4, bidirectional=True, batch_first=True)
        self.head = nn.Linear(8 + 2, CLASSES)

    def forward(self, x: Tensor, static: Tensor, lengths: Tensor | None = None) -> Tensor:
        assert lengths is not None
        outputs = self.layers(x, lengths=lengths)[0]
        beside = static[:, None].expand(-1, x.shape[1], -1)
        logits: Tensor = self.head(torch.cat([outputs, beside], -1))
        return logits


def test_static_values_and_lengths_reach_a_forward_that_takes_them() -> None:
    data = Data((4, 9, 2, 7, 1), batch_first=True)
    inputs, targets, lengths, _ = data.batch()
    static, model = torch.randn(5, 2, dtype=torch.float64), Wishing().double()
    total = torch.zeros((), dtype=torch.float64)
    for number, length in enumerate(data.lengths):
        alone, own, _ = data.sequence(number)
        logits = model(alone, static[number : number + 1], torch.tensor([length]))
        total = total + F.cross_entropy(logits[0], own[0], reduction="sum")
    (total / sum(data.lengths)).backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    told = frozenset({"inputs", "targets"})
    batch = Batch(inputs, targets, lengths, None, None, static=static, steps=10, per_step=told)
    for rows in (1, 2, 5):
        lowtide.PlannedStep(model, cross_entropy, planned(rows))(batch)
        assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("batch_first", [False, True])
def test_inputs_of_steps_beside_inputs_of_sequences(batch_first: bool) -> None:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(INPUTS, 4, batch_first=batch_first)
            self.head = nn.Linear(4 + 2, CLASSES)

        def forward(self, user: Tensor, x: Tensor) -> Tensor:
            steps = self.layers(x)[0]
            wide = user[:, None] if batch_first else user
            logits: Tensor = self.head(torch.cat([steps, wide.expand(*steps.shape[:2], -1)], -1))
            return logits

    data, model = Data((4, 9, 2, 7, 1), batch_first=batch_first), Beside().double()
    inputs, targets, lengths, _ = data.batch()
    user = torch.randn(5, 2, dtype=torch.float64)
    named = {"user": user, "x": inputs}
    told = frozenset({"inputs/x", "targets"})
    batch = Batch(named, targets, lengths, None, None, steps=10, batch_first=batch_first, per_step=told)
    found = []
    for rows in (5, 2, 1):
        lowtide.PlannedStep(model, cross_entropy, planned(rows))(batch)
        found.append(gradients(model))
    assert relative_error(found[1], found[0]) < 1e-12
    assert relative_error(found[2], found[0]) < 1e-12


@CHUNKS
def test_bfloat16_is_near_and_adds_up_in_float32(chunk_steps: int | None) -> None:
    torch.manual_seed(0)
    data, model = Data((4, 9, 2, 7, 1)), lowtide.lean(Labels())
    inputs, *others = data.batch()
    batch = (inputs.float(), *others[:2])
    found, losses = [], []
    for precision in ("float32", "bfloat16"):
        plan = planned(2, chunk_steps=chunk_steps, precision=precision)
        losses.append(lowtide.PlannedStep(model, cross_entropy, plan)(batch))
        found.append(gradients(model))
    assert {gradient.dtype for gradient in found[1].values()} == {torch.float32}
    assert losses[1].dtype == torch.float32
    assert 0 < relative_error(found[1], found[0]) < 0.05
    assert float(losses[1]) == pytest.approx(float(losses[0]), rel=0.02)
    assert not torch.is_autocast_enabled("cpu")


@CHUNKS
def test_a_scaler_scales_what_is_differentiated_alone(chunk_steps: int | None) -> None:
    data, model = Data((4, 9, 2, 7, 1)), lowtide.lean(Labels().double())
    expected_loss, expected = undivided(model, data)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    plan = planned(2, chunk_steps=chunk_steps)
    loss = lowtide.PlannedStep(model, cross_entropy, plan, grad_scaler=scaler)(data.batch())
    assert float(loss) == pytest.approx(float(expected_loss))
    found = {name: gradient / 8 for name, gradient in gradients(model).items()}
    assert relative_error(found, expected) < 1e-12


@CHUNKS
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, lowtide.LowtideError])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_exception_leaves_the_gradients_as_they_were(
    at: int, error: type[BaseException], chunk_steps: int | None
) -> None:
    calls = 0

    class Failing(Labels):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == at + before:
                raise error if error is not lowtide.LowtideError else error(what="", why="", fix="")
            return super().forward(x)

    data, model, before = Data((9, 9, 9)), lowtide.lean(Failing().double()), 0
    step = lowtide.PlannedStep(model, cross_entropy, planned(1, chunk_steps=chunk_steps))
    before = 1000
    step(data.batch())
    kept = {name: (parameter.grad, parameter.grad.clone()) for name, parameter in model.named_parameters()}  # type: ignore[union-attr]
    calls, before = 0, 0
    with pytest.raises(error):
        step(data.batch())
    for name, parameter in model.named_parameters():
        assert parameter.grad is kept[name][0]
        assert torch.equal(parameter.grad, kept[name][1])  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", ["whole", "in place", "layer"])
def test_compiled_models_run(compiled: str) -> None:
    data, model = Data((4, 9, 2, 7, 1)), lowtide.lean(Labels().double())
    _, expected = undivided(model, data)
    used: nn.Module = model
    if compiled == "whole":
        used = torch.compile(model, backend="eager")  # type: ignore[assignment]
    elif compiled == "in place":
        model.compile(backend="eager")
    else:
        model.head = torch.compile(model.head, backend="eager")  # type: ignore[assignment]
    lowtide.PlannedStep(used, cross_entropy, planned(2))(data.batch())
    found = {name.replace("_orig_mod.", ""): gradient for name, gradient in gradients(model).items()}
    assert relative_error(found, expected) < 1e-12


def test_recomputation_inside_of_whole_sequences_knows_their_lengths() -> None:
    class Checkpointed(Labels):
        def forward(self, x: Tensor) -> Tensor:
            forward = super().forward
            logits: Tensor = torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=False)
            return logits

    data, model = Data((9, 2, 5, 7)), lowtide.lean(Checkpointed(pool="mean").double())
    inputs, _, lengths, _ = data.batch()
    targets = torch.arange(4)
    found = []
    for rows in (1, 4):
        lowtide.PlannedStep(model, cross_entropy, planned(rows))((inputs, targets, lengths))
        found.append(gradients(model))
    assert relative_error(*found) < 1e-12


def test_a_step_can_be_pickled() -> None:
    data, model = Data((4, 9, 2, 7, 1)), lowtide.lean(Labels().double())
    _, expected = undivided(model, data)
    step = pickle.loads(pickle.dumps(lowtide.PlannedStep(model, cross_entropy, planned(2))))  # noqa: S301 - made here
    step(data.batch())
    assert relative_error(gradients(step._model.module), expected) < 1e-12  # noqa: SLF001 - its own copy


def test_a_plan_can_be_read_without_torch() -> None:
    program = "import lowtide.step, sys\nlowtide.step.Choice(8, 2, None)\nprint('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


RANKS = """
import os, sys, torch, torch.distributed as dist
import lowtide
from lowtide.nn.losses import cross_entropy
from tests.step.models import gradients, relative_error
from tests.step.planned_cases import *

rank, file, chunk_steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) or None
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(0)
model, data = lowtide.lean(Labels().double()), Data((9, 2, 5, 7, 4, 1))
expected_loss, expected = undivided(model, data)
inputs, targets, lengths, _ = data.batch()
own = slice(0, 2) if rank == 0 else slice(2, 6)
step = lowtide.PlannedStep(
    torch.nn.parallel.DistributedDataParallel(model), cross_entropy, planned(2, chunk_steps=chunk_steps)
)
for _ in range(2):
    loss = step((inputs[:, own], targets[:, own], lengths[own]))
found = {name: gradient / 2 for name, gradient in gradients(model).items()}
assert relative_error(found, expected) < 1e-12, relative_error(found, expected)
assert abs(float(loss) - float(expected_loss)) < 1e-9
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a process that ends by itself
"""


@pytest.mark.parametrize("chunk_steps", [0, 3])
def test_ranks_with_other_numbers_of_micro_batches_share_one_mean(chunk_steps: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANKS]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting"), str(chunk_steps)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


def test_parameters_that_the_loss_alone_knows_are_kept_apart_too() -> None:
    scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    calls = 0

    def failing(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            message = "the second micro-batch"
            raise ValueError(message)
        return scale * cross_entropy(outputs, targets)

    data, model = Data((9, 9)), lowtide.lean(Labels().double())
    with pytest.raises(ValueError, match="second"):
        lowtide.PlannedStep(model, failing, planned(1))(data.batch())
    assert scale.grad is None
