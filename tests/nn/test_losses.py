"""Losses per step equal torch's own, one value for each step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import lowtide
from lowtide.nn import losses

B, T, C = 3, 5, 4


def test_cross_entropy_takes_classes_last_in_any_number_of_dimensions() -> None:
    outputs, targets, weight = torch.randn(B, T, C), torch.randint(C, (B, T)), torch.rand(C)
    targets[0, 0] = 2
    options = {"weight": weight, "ignore_index": 2, "label_smoothing": 0.1}
    expected = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none", **options)  # type: ignore[arg-type]
    torch.testing.assert_close(losses.cross_entropy(outputs, targets, **options), expected)  # type: ignore[arg-type]
    torch.testing.assert_close(losses.cross_entropy(outputs[0], targets[0], **options), expected[0])  # type: ignore[arg-type]
    probabilities = torch.softmax(torch.randn(B, T, C), -1)
    expected = F.cross_entropy(outputs.transpose(1, 2), probabilities.transpose(1, 2), reduction="none")
    torch.testing.assert_close(losses.cross_entropy(outputs, probabilities), expected)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (losses.mse, F.mse_loss),
        (losses.mae, F.l1_loss),
        (losses.huber, F.huber_loss),
        (losses.bce, F.binary_cross_entropy_with_logits),
    ],
)
def test_features_are_averaged_and_steps_are_not(ours: object, theirs: object) -> None:
    outputs, targets = torch.randn(B, T, 2), torch.rand(B, T, 2)
    expected: Tensor = theirs(outputs, targets, reduction="none")  # type: ignore[operator]
    torch.testing.assert_close(ours(outputs, targets), expected.mean(-1))  # type: ignore[operator]
    torch.testing.assert_close(ours(outputs[..., 0], targets[..., 0]), expected[..., 0])  # type: ignore[operator]


def test_quantile_loss_is_least_at_the_quantile() -> None:
    targets = torch.linspace(0, 1, 101)
    for level in (0.1, 0.5, 0.9):
        guesses = torch.linspace(0, 1, 101)
        values = torch.stack(
            [
                losses.quantile(torch.full((101, 1), float(guess)), targets, quantiles=[level]).mean()
                for guess in guesses
            ]
        )
        assert float(guesses[values.argmin()]) == pytest.approx(level, abs=0.011)
    outputs = torch.randn(B, T, 3)
    assert losses.quantile(outputs, torch.randn(B, T)).shape == (B, T)


@pytest.mark.parametrize("block_rows", [None, 1, 4, 100])
def test_linear_cross_entropy_is_that_of_the_logits(block_rows: int | None) -> None:
    head = torch.nn.Linear(6, 50)
    outputs, targets = torch.randn(B, T, 6, requires_grad=True), torch.randint(50, (B, T))
    targets[1, 1] = -100
    sources = [outputs, *head.parameters()]
    expected = losses.cross_entropy(head(outputs), targets)
    found = losses.LinearCrossEntropy(head, block_rows=block_rows)(outputs, targets)
    torch.testing.assert_close(found, expected)
    cotangent = torch.rand(B, T)
    torch.testing.assert_close(
        torch.autograd.grad(found, sources, cotangent), torch.autograd.grad(expected, sources, cotangent)
    )


@pytest.mark.parametrize("loss", [losses.mse, losses.mae, losses.huber, losses.bce])
def test_one_feature_is_dropped_and_nothing_is_broadcast(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    outputs, targets = torch.randn(B, T, 1), torch.rand(B, T)
    torch.testing.assert_close(loss(outputs, targets), loss(outputs[..., 0], targets))
    square = torch.randn(B, 1)
    torch.testing.assert_close(loss(square, targets[:, 0]), loss(square[:, 0], targets[:, 0]))
    for ours, theirs in ((outputs[..., 0], targets[..., None]), (targets[:1], targets), (outputs, targets[0])):
        with pytest.raises(lowtide.LowtideError, match="do not fit"):
            loss(ours, theirs)


def test_targets_of_other_shapes_are_refused() -> None:
    classes, head = torch.randint(C, (B, T)), torch.nn.Linear(6, C)
    for loss, outputs, targets in (
        (losses.cross_entropy, torch.randn(B, T, C), classes[..., None]),
        (losses.cross_entropy, torch.randn(B, T, C), classes.T),
        (losses.quantile, torch.randn(B, T, 3), torch.randn(B, T, 1)),
        (losses.quantile, torch.randn(B, T, 2), torch.randn(B, T)),
        (losses.LinearCrossEntropy(head), torch.randn(B, T, 6), classes.T),
    ):
        with pytest.raises(lowtide.LowtideError, match="do not fit"):
            loss(outputs, targets)
