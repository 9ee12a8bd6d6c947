"""Models that chunks or padding would mislead are refused before training, by the name of the module that does it."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.errors import LowtideError
from lowtide.nn.losses import mse
from tests.step.models import gradients, relative_error

WIDTH = 4
INPUTS, TARGETS = torch.randn(2, 30, 3, WIDTH, generator=torch.Generator().manual_seed(0))


class Around(nn.Module):
    """Runs one module between two that act on each step alone."""

    def __init__(self, mixing: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.before = nn.Linear(WIDTH, WIDTH)
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.mixing = mixing
        self.after = nn.Linear(WIDTH, WIDTH)
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.call(self.mixing, self.layers(self.before(x))[0])
        outputs: Tensor = self.after(mixed)
        return outputs


def channels(module: nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = module(x.permute(1, 2, 0))
    return outputs.permute(2, 0, 1)


def test_a_stock_layer_is_refused_although_a_short_sample_shows_no_difference() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(WIDTH, WIDTH)
            for parameter in self.layer.parameters():
                nn.init.zeros_(parameter)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layer(x)[0]
            return outputs

    step = lowtide.StreamStep(Forgetful(), lowtide.nn.losses.mse, chunk_steps=16)
    data = torch.randn(100, 3, WIDTH)
    with pytest.raises(LowtideError, match=r"module 'layer' \(LSTM\) is a stock layer"):
        step(data, torch.zeros_like(data))
    step = lowtide.StreamStep(lowtide.lean(Forgetful()), lowtide.nn.losses.mse, chunk_steps=16)
    assert torch.isfinite(step(data, torch.zeros_like(data)))


MIXING: dict[str, tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor], str]] = {
    "bidirectional": (
        lowtide.nn.LSTM(WIDTH, WIDTH // 2, bidirectional=True),
        lambda module, x: module(x)[0],
        "unidirectional",
    ),
    "stock": (nn.LSTM(WIDTH, WIDTH), lambda module, x: module(x)[0], "lowtide.lean"),
    "attention": (
        nn.MultiheadAttention(WIDTH, 1),
        lambda module, x: module(x, x, x, need_weights=False)[0],
        "micro-batches",
    ),
    "BatchNorm": (nn.BatchNorm1d(WIDTH), channels, "LayerNorm"),
    "convolution": (nn.Conv1d(WIDTH, WIDTH, 3, padding=1), channels, "CausalConv1d"),
    "pooling": (nn.AvgPool1d(3, stride=1, padding=1), channels, "Pool"),
}


@pytest.mark.parametrize("kind", MIXING)
def test_a_module_that_mixes_time_is_named_with_what_to_use_instead(kind: str) -> None:
    mixing, call, instead = MIXING[kind]
    model = Around(mixing, call)
    step = lowtide.StreamStep(model, mse, chunk_steps=10, batch_first=False)
    with pytest.raises(lowtide.LowtideError) as refusal:
        step(INPUTS, TARGETS)
    assert repr("mixing") in refusal.value.what
    assert type(mixing).__name__ in refusal.value.what
    assert instead in refusal.value.fix
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_same_modules_are_taken_where_they_mix_nothing() -> None:
    model = Around(nn.BatchNorm1d(WIDTH).eval(), channels)
    lowtide.StreamStep(model, mse, chunk_steps=10)(INPUTS, TARGETS)
    assert model.mixing.weight.grad is not None


def test_a_forward_that_mixes_time_by_itself_is_named() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layers(x - x.mean(0))[0]
            return outputs

    with pytest.raises(lowtide.LowtideError, match="forward of Centred"):
        lowtide.StreamStep(Centred(), mse)(INPUTS, TARGETS)


def test_a_mixing_hidden_behind_a_zero_is_found_by_its_gradient() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layers(x)[0]
            gated: Tensor = outputs + self.gate * outputs.mean(0)
            return gated

    with pytest.raises(lowtide.LowtideError, match="gradients"):
        lowtide.StreamStep(Gated(), mse)(INPUTS, TARGETS)


def test_recomputation_inside_the_model_is_found_by_its_gradient() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=False)[0]
            return outputs

    with pytest.raises(lowtide.LowtideError):
        lowtide.StreamStep(Checkpointed(), mse)(INPUTS, TARGETS)


class Averaged(nn.Module):
    """Takes padding for data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layers(x)[0]
        (state,) = lowtide.nn.carry_in(self, (outputs.new_zeros(outputs.shape[1:]),))
        total: Tensor = state + outputs.sum(0) + x.sum(0)
        lowtide.nn.carry_out(self, (total,))
        return total


def test_a_model_that_takes_padding_for_data_is_refused_where_there_is_padding() -> None:
    targets = torch.randn(3, WIDTH)
    lowtide.StreamStep(Averaged(), mse, chunk_steps=10)(INPUTS, targets)
    with pytest.raises(lowtide.LowtideError, match=r"Averaged.* padding"):
        lowtide.StreamStep(Averaged(), mse, chunk_steps=10)(INPUTS, targets, lengths=[30, 20, 3])


def test_trying_a_model_leaves_it_as_it_was() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH, 2, dropout=0.5)
            self.register_buffer("seen", torch.zeros(()))
            self.seen: Tensor

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            outputs: Tensor = self.layers(x)[0]
            return outputs

    model = Counting()
    model.layers.eval()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    lowtide.StreamStep(model, mse, chunk_steps=30)(INPUTS, TARGETS)
    assert torch.equal(torch.get_rng_state(), before)
    assert float(model.seen) == 1, "one chunk, one forward"
    assert model.training
    assert not model.layers.training
    assert model.layers.dropout == 0.5
    assert not model._forward_hooks  # noqa: SLF001


def test_a_model_that_draws_numbers_of_its_own_is_taken() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            noisy = x + torch.randn_like(x) if self.training else x
            outputs: Tensor = self.layers(noisy)[0]
            return outputs

    lowtide.StreamStep(Noisy(), mse, chunk_steps=10)(INPUTS, TARGETS)


class Across(nn.Module):
    """Takes (B, T, ...), whatever its layer says."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x.transpose(0, 1))[0]
        return outputs.transpose(0, 1)


def test_a_layout_that_was_guessed_wrong_is_found() -> None:
    with pytest.raises(lowtide.LowtideError, match="batch_first=True"):
        lowtide.StreamStep(Across(), mse)(INPUTS, TARGETS)
    lowtide.StreamStep(Across(), mse, batch_first=True)(INPUTS, TARGETS)


def test_a_forward_that_changes_its_inputs_is_refused() -> None:
    class Doubling(Averaged):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2))

    with pytest.raises(lowtide.LowtideError, match="in place"):
        lowtide.StreamStep(Doubling(), mse, chunk_steps=10)(INPUTS, TARGETS[0])


def test_packing_sequences_that_have_ended_is_refused_with_what_to_do() -> None:
    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(WIDTH, WIDTH)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            outputs, _ = nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], total_length=len(x))
            return outputs

    model = Packing().double()
    inputs, targets = INPUTS.double(), TARGETS.double()
    mse(model(inputs, torch.tensor([30] * 3)), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    lowtide.StreamStep(model, mse, chunk_steps=10)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12
    with pytest.raises(lowtide.LowtideError) as refusal:
        lowtide.StreamStep(model, mse, chunk_steps=10)(inputs, targets, lengths=[30, 20, 3])
    assert "lean layers know the lengths" in refusal.value.fix


# ---- arguments -------------------------------------------------------------------------------------------------------


def layer() -> nn.Module:
    return lowtide.nn.GRU(WIDTH, WIDTH)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chunk_steps": 0}, "chunk_steps=0"),
        ({"chunk_steps": 2.5}, r"chunk_steps=2\.5"),
        ({"chunk_steps": True}, "chunk_steps=True"),
        ({"keep_chunks": -1}, "keep_chunks=-1"),
        ({"window_steps": 0}, "window_steps=0"),
        ({"boundaries": "cloud"}, "cloud"),
    ],
)
def test_meaningless_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(lowtide.LowtideError, match=said):
        lowtide.StreamStep(layer(), mse, **options)  # type: ignore[arg-type]


def test_a_model_that_does_not_say_where_time_lies_is_asked() -> None:
    mixed = nn.Sequential(lowtide.nn.GRU(WIDTH, WIDTH), lowtide.nn.GRU(WIDTH, WIDTH, batch_first=True))
    for model in (nn.Linear(WIDTH, WIDTH), mixed):
        with pytest.raises(lowtide.LowtideError, match="batch_first"):
            lowtide.StreamStep(model, mse)
    lowtide.StreamStep(nn.Linear(WIDTH, WIDTH), mse, batch_first=True)(INPUTS, TARGETS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"inputs": torch.randn(0, 3, WIDTH)}, "0 steps"),
        ({"inputs": torch.randn(30)}, r"shape \(30,\)"),
        ({"inputs": []}, "inputs"),
        ({"inputs": INPUTS.clone().requires_grad_()}, "require gradients"),
        ({"targets": TARGETS[:29]}, "targets"),
        ({"targets": TARGETS[:, :2]}, "targets"),
        ({"lengths": [30, 20]}, "lengths"),
        ({"lengths": [31, 20, 3]}, "31"),
        ({"lengths": [0, 0, 0]}, "length 0"),
        ({"weight": torch.ones(4)}, "weight"),
        ({"targets": TARGETS.clone().requires_grad_()}, "targets require gradients"),
    ],
)
def test_data_that_do_not_fit_are_refused_and_no_gradient_is_touched(arguments: dict[str, object], said: str) -> None:
    model = layer()
    step = lowtide.StreamStep(model, mse, chunk_steps=10)
    with pytest.raises(lowtide.LowtideError, match=said):
        step(**({"inputs": INPUTS, "targets": TARGETS} | arguments))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_weight_for_each_step_of_one_output_a_sequence_is_refused() -> None:
    step = lowtide.StreamStep(Averaged(), mse, chunk_steps=10)
    with pytest.raises(lowtide.LowtideError, match="one value a step"):
        step(INPUTS, TARGETS[0], weight=torch.ones(30, 3))


def clamp(weight: Tensor) -> None:
    weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))  # type: ignore[no-untyped-call] # torch ships it so


def step_at_once(weight: Tensor) -> None:
    # What torch.distributed.optim leaves where it has an optimizer run inside of the backward pass.
    weight._in_backward_optimizers = [torch.optim.SGD([weight])]  # type: ignore[attr-defined] # noqa: SLF001


@pytest.mark.parametrize("register", [clamp, step_at_once])
def test_what_runs_when_a_gradient_is_there_is_refused(register: Callable[[Tensor], None]) -> None:
    model = lowtide.nn.GRU(WIDTH, WIDTH)
    register(next(model.parameters()))
    with pytest.raises(lowtide.LowtideError, match="hook"):
        lowtide.StreamStep(model, mse, chunk_steps=10)(INPUTS, TARGETS)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_disk_that_is_none_is_refused_when_the_step_is_made(tmp_path: Path) -> None:
    with pytest.raises(lowtide.LowtideError, match="no such folder"):
        lowtide.StreamStep(layer(), mse, boundaries="disk", scratch=tmp_path / "nowhere")
