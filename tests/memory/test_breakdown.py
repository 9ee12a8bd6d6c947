"""A breakdown counts every storage once, under the module that keeps it, and leaves the model as it was."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide.errors import LowtideError
from lowtide.memory import Breakdown, Part, breakdown
from tests.memory.pages import MIB

FLOAT = 4
B, T, I, H = 8, 16, 32, 64  # noqa: E741 - as everywhere: sequences, steps, inputs, hidden size


class Tagger(nn.Module):
    """A layer, a normalisation, dropout and a head: with tied weights, buffers and a draw of random numbers."""

    def __init__(self) -> None:
        """Make the modules."""
        super().__init__()
        self.lift = nn.Linear(I, H)
        self.norm = nn.BatchNorm1d(H)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(H, H, bias=False)
        self.tied = nn.Linear(H, H, bias=False)
        self.tied.weight = self.head.weight

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, T, H)."""
        lifted = self.norm(torch.tanh(self.lift(x)).transpose(1, 2)).transpose(1, 2)
        result: Tensor = self.tied(self.drop(self.head(lifted)))
        return result


PARAMETERS = FLOAT * (I * H + H + 2 * H + H * H)
BUFFERS = FLOAT * 2 * H + 8


def activations(found: Breakdown) -> dict[str, int]:
    return {part.name: part.bytes for part in found.parts if part.component == "activations"}


def test_parameters_and_buffers_are_counted_once_and_gradients_before_they_are_there() -> None:
    found = breakdown(Tagger())
    assert found.of("parameters") == PARAMETERS
    assert found.of("buffers") == BUFFERS
    assert found.of("gradients") == PARAMETERS
    assert [part.there for part in found.parts if part.component == "gradients"] == [False]
    assert found.of("optimizer state") == found.of("activations") == found.of("prefetch ring") == 0
    assert found.of("runtime") > 10 * MIB
    assert found.bytes == sum(part.bytes for part in found.parts)


def test_gradients_that_are_there_count_as_they_are() -> None:
    model = Tagger()
    model.head.requires_grad_(requires_grad=False)
    model(torch.randn(B, T, I)).sum().backward()
    found = breakdown(model)
    assert found.of("gradients") == PARAMETERS - FLOAT * H * H
    assert all(part.there for part in found.parts)


def test_the_state_of_an_optimizer_is_told_by_type() -> None:
    model = Tagger().bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(B, T, I, dtype=torch.bfloat16)).sum().backward()
    assert breakdown(model, optimizer).of("optimizer state") == 0
    optimizer.step()
    found = [part for part in breakdown(model, optimizer).parts if part.component == "optimizer state"]
    steps = len(list(model.parameters())) * FLOAT
    assert {part.name: part.bytes for part in found} == {"bfloat16": PARAMETERS, "float32": steps}


def test_sparse_gradients_count_their_indices_and_values() -> None:
    model = nn.Embedding(1000, 16, sparse=True)
    model(torch.tensor([1, 5, 9])).sum().backward()
    assert breakdown(model).of("gradients") == 3 * 8 + 3 * 16 * FLOAT


def test_activations_stand_under_the_module_that_keeps_them() -> None:
    x = torch.randn(B, T, I)
    kept = activations(breakdown(Tagger(), sample=x))
    values = B * T * H * FLOAT
    # tanh keeps its result, in the model's own forward; the normalisation keeps only its statistics beside it.
    assert kept["Tagger"] == values
    assert kept["norm"] < values
    assert kept["head"] == values  # what it was given, in another order than tanh's result
    assert kept["tied"] == values
    assert "lift" not in kept  # what it keeps is the batch
    assert breakdown(Tagger(), sample=x).of("batch") == B * T * I * FLOAT


def test_the_loss_keeps_its_own_outside_of_the_model() -> None:
    model, x, y = nn.Linear(I, H), torch.randn(B, I), torch.randn(B, H)
    alone = breakdown(model, sample=(x, y))
    found = breakdown(model, sample=(x, y), loss_fn=nn.functional.mse_loss)
    assert activations(alone) == {}
    assert activations(found) == {"outside of the model": B * H * FLOAT}
    assert found.of("batch") == FLOAT * B * (I + H)


def test_a_loss_without_targets_is_refused() -> None:
    with pytest.raises(LowtideError, match="no targets"):
        breakdown(nn.Linear(I, H), sample=torch.randn(B, I), loss_fn=nn.functional.mse_loss)


@dataclass(frozen=True)
class Sample:
    """As loaders yield it."""

    inputs: Tensor
    targets: Tensor
    lengths: Tensor


def test_a_batch_of_a_loader_gives_its_inputs_and_targets() -> None:
    sample = Sample(torch.randn(B, I), torch.randn(B, H), torch.full((B,), T))
    found = breakdown(nn.Linear(I, H), sample=sample, loss_fn=nn.functional.mse_loss, ring_bytes=5 * MIB)
    assert activations(found) == {"outside of the model": B * H * FLOAT}
    assert found.of("prefetch ring") == 5 * MIB


def test_what_is_let_go_before_the_pass_ends_does_not_count() -> None:
    class Checkpointed(nn.Module):
        """Keeps nothing but its inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(I, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                self.inner(x)  # a result that nobody takes
            result: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return result

    model = Checkpointed()
    assert breakdown(model, sample=torch.randn(B, I)).of("activations") == 0
    assert breakdown(model.inner, sample=torch.randn(B, I)).of("activations") == 2 * B * H * FLOAT


@pytest.mark.parametrize("keep", ["gates", "outputs"])
def test_lean_layers_show_what_they_keep(keep: Literal["gates", "outputs"]) -> None:
    x = torch.randn(T, B, I)
    stock = nn.LSTM(I, H, num_layers=2)
    lean = lowtide.nn.LSTM(I, H, num_layers=2, keep=keep)
    outputs = 2 * B * T * H * FLOAT
    least = outputs if keep == "outputs" else 4 * outputs
    assert least <= breakdown(lean, sample=x).of("activations") < breakdown(stock, sample=x).of("activations")


def test_the_model_and_the_random_state_stay_as_they_were_and_nothing_is_kept_alive() -> None:
    model, x = Tagger(), torch.randn(B, T, I)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    breakdown(model, sample=x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())  # noqa: SLF001
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_forward_that_fails_leaves_no_hooks() -> None:
    model = Tagger()
    with pytest.raises(RuntimeError):
        breakdown(model, sample=torch.randn(B, T, I + 1))
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())  # noqa: SLF001


MADE = Breakdown(
    (
        Part("parameters", "float32", "cpu", 6 * MIB),
        Part("gradients", "float32", "cpu", 6 * MIB, there=False),
        *(Part("activations", f"layer<{index}>", "cpu", index * MIB) for index in range(1, 11)),
        Part("runtime", "interpreter", "cpu", 33 * MIB),
    )
)


def test_the_table_shows_each_part_with_its_share_and_adds_up_the_smallest() -> None:
    lines = str(MADE).splitlines()
    assert lines[2].split() == ["parameters", "float32", "cpu", "6.00", "MiB", "6.0", "%"]
    assert "float32 (to come)" in lines[3]
    assert lines[4].split()[:2] == ["activations", "layer<10>"]
    assert lines[12].split() == ["2", "more", "cpu", "3.00", "MiB", "3.0", "%"]
    assert lines[-1].split() == ["together", "100", "MiB", "100.0", "%"]
    assert len({len(line) for line in lines}) == 1


def test_the_notebook_shows_the_same_and_escapes_names() -> None:
    html = MADE._repr_html_()
    assert "layer&lt;10&gt;" in html
    assert html.count("<tr>") == len(str(MADE).splitlines()) - 1
