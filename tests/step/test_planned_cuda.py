"""On a GPU a planned step gives the gradients of the undivided batch, wherever the data lie."""

from __future__ import annotations

import pytest
import torch

import lowtide
from lowtide.nn.losses import cross_entropy
from tests.step.models import gradients, relative_error
from tests.step.planned_cases import Data, Labels, planned, undivided

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

DATA = Data((4, 9, 2, 7, 1), weights="step")


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("chunk_steps", [None, 3])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_gradients_are_those_of_the_undivided_batch(rows: int, chunk_steps: int | None, *, on_gpu: bool) -> None:
    model = lowtide.lean(Labels(layers=2).double())
    expected_loss, expected = undivided(model, DATA)
    inputs, targets, lengths, weight = DATA.batch()
    if on_gpu:
        inputs, targets, weight = inputs.cuda(), targets.cuda(), weight.cuda()
    step = lowtide.PlannedStep(model.cuda(), cross_entropy, planned(rows, chunk_steps=chunk_steps))
    loss = step((inputs, targets, lengths, weight))
    found = {name: gradient.cpu() for name, gradient in gradients(model).items()}
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
    assert relative_error(found, expected) < 1e-10


@pytest.mark.parametrize("chunk_steps", [None, 3])
def test_bfloat16_is_near(chunk_steps: int | None) -> None:
    model = lowtide.lean(Labels()).cuda()
    inputs, targets, lengths, _ = DATA.batch()
    found = []
    for precision in ("float32", "bfloat16"):
        plan = planned(2, chunk_steps=chunk_steps, precision=precision)
        lowtide.PlannedStep(model, cross_entropy, plan)((inputs.float(), targets, lengths))
        found.append(gradients(model))
    assert relative_error(found[1], found[0]) < 0.1
