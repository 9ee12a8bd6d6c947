"""On a GPU a stream gives the gradients of whole sequences, dropout and boundary states on disk included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import lowtide
from lowtide.step._boundaries import Place
from tests.step.models import (
    CELLS,
    CLASSES,
    INPUTS,
    Classifier,
    Tagger,
    gradients,
    per_step_loss,
    relative_error,
    whole_loss,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

STEPS, BATCH = 23, 3


def drawn() -> tuple[Tensor, Tensor]:
    """Inputs and targets, on the CPU: a stream loads one chunk of them."""
    torch.manual_seed(1)
    return torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64), torch.randint(CLASSES, (STEPS, BATCH))


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("keep_chunks", [0, 2, 9])
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_those_of_the_whole_sequences(cell: str, keep_chunks: int, place: Place, tmp_path: Path) -> None:
    inputs, targets = drawn()
    lengths = torch.tensor([23, 9, 1])
    model = Tagger(cell).double().cuda()
    expected_loss = whole_loss(model, inputs.cuda(), targets.cuda())
    expected_loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    step = lowtide.StreamStep(
        model, per_step_loss, chunk_steps=4, keep_chunks=keep_chunks, boundaries=place, scratch=tmp_path
    )
    loss = step(inputs, targets)
    assert float(loss) == pytest.approx(expected_loss.item(), rel=1e-6)
    assert relative_error(gradients(model), expected) < 1e-10
    on_cpu = Tagger(cell).double()
    on_cpu.load_state_dict(model.state_dict())
    lowtide.StreamStep(on_cpu, per_step_loss, chunk_steps=4)(inputs, targets, lengths=lengths)
    step(inputs, targets, lengths=lengths)
    found = {name: gradient.cpu() for name, gradient in gradients(model).items()}
    assert relative_error(found, gradients(on_cpu)) < 1e-10


def test_one_output_a_sequence() -> None:
    inputs, targets = drawn()
    model = Classifier("attention").double().cuda()
    lowtide.StreamStep(model, lowtide.nn.losses.cross_entropy, chunk_steps=4)(inputs, targets[0])
    found = gradients(model)
    whole_loss(model, inputs.cuda(), targets[0].cuda()).backward()  # type: ignore[no-untyped-call]
    assert relative_error(found, gradients(model)) < 1e-10


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_drops_the_same_in_both_passes(cell: str) -> None:
    inputs, targets = drawn()
    model = Tagger(cell, dropout=0.3).double().cuda()
    found = []
    for keep_chunks in (0, 9):
        torch.manual_seed(3)
        lowtide.StreamStep(model, per_step_loss, chunk_steps=4, keep_chunks=keep_chunks)(inputs, targets)
        found.append(gradients(model))
    assert relative_error(*found) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_a_grad_scaler(dtype: torch.dtype) -> None:
    inputs, targets = drawn()
    model = Tagger().cuda()
    whole_loss(model, inputs.cuda().float(), targets.cuda()).backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.autocast("cuda", dtype=dtype):
        lowtide.StreamStep(model, per_step_loss, chunk_steps=7, grad_scaler=scaler)(inputs.float(), targets)
    scaler.unscale_(optimizer)
    assert relative_error(gradients(model), expected) < 0.1
