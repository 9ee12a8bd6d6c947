"""A character model learns along the same curve with stock layers and with lean ones."""
# ruff: noqa: D102, D107 - a module's forward needs no docstring

from __future__ import annotations

import inspect
import json.decoder
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import lowtide
from lowtide.ops.spec import KEEPS, Keep

BATCH_SIZE, STEPS, HIDDEN_SIZE = 16, 64, 64


class CharacterModel(torch.nn.Module):
    """Predicts each next character of a text."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, HIDDEN_SIZE)
        self.layers = torch.nn.LSTM(HIDDEN_SIZE, HIDDEN_SIZE, num_layers=2, batch_first=True, dropout=0.1)
        self.head = torch.nn.Linear(HIDDEN_SIZE, characters)

    def forward(self, text: Tensor) -> Tensor:
        outputs, _ = self.layers(self.embedding(text))
        logits: Tensor = self.head(outputs)
        return logits


def read_text() -> tuple[Tensor, int]:
    """Number the characters of a part of Python's own source."""
    text = inspect.getsource(json.decoder)
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[character] for character in text]), len(numbers)


def loss_curve(keep: Keep | None) -> Tensor:
    """Train for 200 steps, with lean layers where a keep mode is given."""
    torch.manual_seed(0)
    text, characters = read_text()
    model = CharacterModel(characters)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if keep is not None:
        lowtide.lean(model, keep)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(200):
        starts = torch.randint(len(text) - STEPS, (BATCH_SIZE,), generator=generator)
        rows = torch.stack([text[start : start + STEPS + 1] for start in starts.tolist()])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    # Work this small only waits for its threads, and long where other programs keep the cores busy.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def stock_curve() -> Tensor:
    return loss_curve(None)


@pytest.mark.parametrize("keep", KEEPS)
def test_two_hundred_steps_follow_the_stock_loss_curve(stock_curve: Tensor, keep: Keep) -> None:
    torch.testing.assert_close(loss_curve(keep), stock_curve, rtol=0, atol=1e-4)
    assert stock_curve[-10:].mean() < 0.7 * stock_curve[0]
