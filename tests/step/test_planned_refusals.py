"""What a planned step refuses: models that padding or other sequences mislead, and batches that do not fit."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import lowtide
from lowtide.data import Batch
from lowtide.nn.losses import cross_entropy, mse
from lowtide.step import Choice
from tests.step.models import gradients, relative_error
from tests.step.planned_cases import CLASSES, HIDDEN, INPUTS, Data, Labels, Plan, planned, undivided

DATA = Data((4, 9, 2, 7, 1))
EQUAL = Data((9, 9, 9, 9, 9), padding=0)


class Around(nn.Module):
    """A module behind one that acts on each step alone, in front of a layer that knows lengths."""

    def __init__(self, inner: nn.Module, act: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.front = nn.Linear(INPUTS, HIDDEN)
        self.inner = copy.deepcopy(inner)
        self.act = act
        self.layers = lowtide.nn.GRU(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(self.act(self.inner, self.front(x)))[0]
        return logits


def channels(module: nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = module(x.permute(1, 2, 0))
    return outputs.permute(2, 0, 1)


def attending(module: nn.Module, x: Tensor) -> Tensor:
    outputs: Tensor = module(x, x, x, need_weights=False)[0]
    return outputs


TAKES_PADDING: dict[str, tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor], str]] = {
    "attention": (nn.MultiheadAttention(HIDDEN, 1), attending, "valid_lengths"),
    "convolution": (nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1), channels, "CausalConv1d"),
    "stock": (nn.LSTM(HIDDEN, HIDDEN // 2, bidirectional=True), lambda module, x: module(x)[0], "lowtide.lean"),
}


def test_a_convolution_behind_a_layer_that_knows_lengths_sees_zeros_there_as_at_any_end() -> None:
    class Behind(Labels):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(channels(self.convolution, self.layers(x)[0]))
            return logits

    model = Behind().double()
    _, expected = undivided(model, DATA)
    lowtide.PlannedStep(lowtide.lean(model), cross_entropy, planned(2))(DATA.batch())
    assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("kind", TAKES_PADDING)
def test_a_module_that_takes_padding_for_data_is_named_where_lengths_differ(kind: str, rows: int) -> None:
    inner, act, instead = TAKES_PADDING[kind]
    model = Around(inner, act).double()
    step = lowtide.PlannedStep(model, cross_entropy, planned(rows), batch_first=False)
    with pytest.raises(lowtide.LowtideError) as refusal:
        step(DATA.batch())
    assert repr("inner") in refusal.value.what
    assert type(inner).__name__ in refusal.value.what
    assert instead in refusal.value.fix
    assert "without streaming" not in refusal.value.fix
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", TAKES_PADDING)
def test_the_same_module_is_taken_where_nothing_is_padded(kind: str) -> None:
    inner, act, _ = TAKES_PADDING[kind]
    model, (inputs, targets, lengths, _) = Around(inner, act).double(), EQUAL.batch()
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    for rows in (1, 2, 5):
        lowtide.PlannedStep(model, cross_entropy, planned(rows), batch_first=False)((inputs, targets, lengths))
        assert relative_error(gradients(model), expected) < 1e-10


def test_a_model_is_tried_anew_where_circumstances_change() -> None:
    model = Around(nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1), channels).double()
    step = lowtide.PlannedStep(model, cross_entropy, planned(5))
    step(EQUAL.batch())
    with pytest.raises(lowtide.LowtideError, match="padding"):
        step(DATA.batch())


NORMS = [nn.BatchNorm1d(HIDDEN), nn.SyncBatchNorm(HIDDEN), nn.BatchNorm1d(HIDDEN, track_running_stats=False).eval()]


@pytest.mark.parametrize("norm", NORMS)
def test_batch_norm_is_refused_where_a_batch_is_cut(norm: nn.Module) -> None:
    model = Around(norm, channels).double()
    with pytest.raises(lowtide.LowtideError) as refusal:
        lowtide.PlannedStep(model, cross_entropy, planned(2))(EQUAL.batch())
    assert repr("inner") in refusal.value.what
    assert type(norm).__name__ in refusal.value.what
    for instead in ("GroupNorm", "LayerNorm", "eval()", "one micro-batch"):
        assert instead in refusal.value.fix


def test_batch_norm_is_taken_in_one_micro_batch_and_in_evaluation() -> None:
    model = Around(nn.BatchNorm1d(HIDDEN), channels).double()
    lowtide.PlannedStep(model, cross_entropy, planned(5))(EQUAL.batch())
    assert float(gradients(model)["inner.weight"].abs().max()) > 0
    model.inner.eval()
    found = []
    for rows in (5, 2):
        lowtide.PlannedStep(model, cross_entropy, planned(rows))(EQUAL.batch())
        found.append(gradients(model))
    assert relative_error(*found) < 1e-12


class Centred(nn.Module):
    """Takes the mean over sequences away."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)


def test_a_module_that_mixes_sequences_is_named_where_a_batch_is_cut() -> None:
    model = Around(Centred(), lambda module, x: module(x)).double()
    step = lowtide.PlannedStep(model, cross_entropy, planned(2))
    with pytest.raises(lowtide.LowtideError, match=r"'inner' \(Centred\) gives a sequence .* when another runs"):
        step(EQUAL.batch())
    lowtide.PlannedStep(model, cross_entropy, planned(5))(EQUAL.batch())


class Loop(nn.Module):
    """Runs along its first axis, and no layer of it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state, rows = None, []
        for row in x:
            state = self.cell(row, state)
            rows.append(state)
        return torch.stack(rows)


def test_data_read_in_the_wrong_layout_are_not_cut_along_time() -> None:
    model, (inputs, targets, *_) = Loop().double(), EQUAL.batch()
    with pytest.raises(lowtide.LowtideError, match="beside it") as refusal:
        lowtide.PlannedStep(model, cross_entropy, planned(2))((inputs, targets))
    assert "batch_first=False" in refusal.value.fix
    found = []
    for rows in (2, 5):
        lowtide.PlannedStep(model, cross_entropy, planned(rows), batch_first=False)((inputs, targets))
        found.append(gradients(model))
    assert relative_error(*found) < 1e-12


def test_a_loss_of_sequences_that_counts_padding_is_refused() -> None:
    def over_time(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets).mean(0)

    model = lowtide.lean(Labels().double())
    with pytest.raises(lowtide.LowtideError, match="loss of a sequence changes when padding is added"):
        lowtide.PlannedStep(model, over_time, planned(2))(DATA.batch())
    found = []
    for loss_fn, rows in ((over_time, 2), (over_time, 5), (cross_entropy, 5)):
        lowtide.PlannedStep(model, loss_fn, planned(rows))(EQUAL.batch())
        found.append(gradients(model))
    assert relative_error(found[0], found[2]) < 1e-12
    assert relative_error(found[1], found[2]) < 1e-12


@pytest.mark.parametrize("data", [DATA, EQUAL])
@pytest.mark.parametrize("chunk_steps", [None, 3])
def test_a_scalar_is_refused_with_the_rule(chunk_steps: int | None, data: Data) -> None:
    model = lowtide.lean(Labels().double())
    step = lowtide.PlannedStep(model, lambda o, t: cross_entropy(o, t).mean(), planned(2, chunk_steps=chunk_steps))
    with pytest.raises(lowtide.LowtideError, match="one value per step"):
        step(data.batch())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_longer_batches_than_the_plan_knows_are_refused() -> None:
    step = lowtide.PlannedStep(lowtide.lean(Labels().double()), cross_entropy, planned(2, steps=8))
    with pytest.raises(lowtide.LowtideError, match="9 steps, and the plan is for at most 8") as refusal:
        step(DATA.batch())
    assert "max_length" in refusal.value.fix
    inputs, targets, lengths, _ = DATA.batch()
    step((inputs, targets, lengths.clamp(max=8)))


@pytest.mark.parametrize("choices", [(), (Choice(9, 1, None), Choice(4, 1, None)), (Choice(9, 1, None),) * 2])
def test_a_plan_without_an_ascending_choice_is_refused(choices: tuple[Choice, ...]) -> None:
    with pytest.raises(lowtide.LowtideError, match="choices"):
        lowtide.PlannedStep(Labels(), cross_entropy, Plan(choices))


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(lowtide.LowtideError, match="float8"):
        lowtide.PlannedStep(Labels(), cross_entropy, planned(1, precision="float8"))


def batch_with(**changes: object) -> Batch:
    inputs, targets, lengths, weight = DATA.batch()
    told = frozenset({"inputs", "targets"})
    batch = Batch(inputs, targets, lengths, None, None, weight, steps=10, batch_first=False, per_step=told)
    return replace(batch, **changes)  # type: ignore[arg-type]


PACKED = pack_padded_sequence(DATA.tensors["inputs"], torch.tensor(DATA.lengths), enforce_sorted=False)
SHORT = DATA.tensors["inputs"][:, :3]
WRONG: dict[str, tuple[object, str]] = {
    "packed": ((PACKED, DATA.tensors["targets"]), "pad_packed_sequence"),
    "packed alone": (PACKED, "pad_packed_sequence"),
    "packed batch": (batch_with().packed(), "packed=True"),
    "tensor": (DATA.tensors["inputs"], "form"),
    "one part": ((DATA.tensors["inputs"],), "form"),
    "five parts": ((*DATA.batch(), None), "form"),
    "other names": ({"x": DATA.tensors["inputs"], "y": DATA.tensors["targets"]}, "form"),
    "no targets": (batch_with(targets=None), "give both"),
    "lanes": (batch_with(begins=torch.tensor([True] * 5)), "stateful=True"),
    "few targets": ((SHORT, DATA.tensors["targets"]), "shape"),
    "other parts": (({"x": DATA.tensors["inputs"], "y": SHORT}, DATA.tensors["targets"]), "as many sequences"),
    "no axis": ((torch.tensor(1.0), DATA.tensors["targets"]), "tensors or arrays"),
    "lengths of fixed data": ((torch.zeros(5), torch.zeros(5), torch.ones(5).long()), "leave lengths out"),
    "few lengths": ((*DATA.batch()[:2], torch.tensor([1, 2])), "one length for each sequence"),
    "too long": ((*DATA.batch()[:2], torch.tensor([11, 1, 1, 1, 1])), "valid steps"),
    "nothing valid": ((*DATA.batch()[:2], torch.zeros(5).long()), "leave such a batch out"),
    "few weights": ((*DATA.batch()[:3], torch.ones(4)), "weight"),
    "gradients": ((DATA.tensors["inputs"].clone().requires_grad_(), DATA.tensors["targets"]), "detach"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_batches_that_do_not_fit_are_refused_with_what_to_do(kind: str) -> None:
    batch, fix = WRONG[kind]
    model = lowtide.lean(Labels().double())
    with pytest.raises(lowtide.LowtideError) as refusal:
        lowtide.PlannedStep(model, cross_entropy, planned(2))(batch)  # type: ignore[arg-type]
    assert fix in refusal.value.fix or fix in refusal.value.what
    assert all(parameter.grad is None for parameter in model.parameters())


def test_weights_of_steps_for_a_loss_of_sequences_are_refused() -> None:
    inputs, _, lengths, _ = DATA.batch()
    model = lowtide.lean(Labels(pool="mean").double())
    step = lowtide.PlannedStep(model, cross_entropy, planned(2))
    with pytest.raises(lowtide.LowtideError, match="one value a step"):
        step((inputs, torch.arange(5), lengths, torch.ones(10, 5)))


def test_static_values_are_not_streamed() -> None:
    class Wishing(Labels):
        def forward(self, x: Tensor, static: Tensor | None = None) -> Tensor:
            assert static is None or len(static) == x.shape[1]
            return super().forward(x)

    batch, model = batch_with(static=torch.zeros(5, 2)), lowtide.lean(Wishing().double())
    with pytest.raises(lowtide.LowtideError, match="static"):
        lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=3))(batch)
    lowtide.PlannedStep(model, cross_entropy, planned(2))(batch)
    lowtide.PlannedStep(lowtide.lean(Labels().double()), cross_entropy, planned(2, chunk_steps=3))(batch)


def test_data_of_a_fixed_size_are_not_streamed() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2))
    step = lowtide.PlannedStep(model, mse, planned(2, chunk_steps=3))
    with pytest.raises(lowtide.LowtideError, match="axis of time"):
        step((np.arange(5), np.zeros((5, 2), np.float32)))


CHOICES = [
    {"steps": 0},
    {"rows": 0},
    {"rows": 2.0},
    {"keep": "all"},
    {"chunk_steps": 0},
    {"keep_chunks": -1},
    {"steps": True},
]


@pytest.mark.parametrize("changes", CHOICES)
def test_a_choice_that_means_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(lowtide.LowtideError, match=next(iter(changes))):
        replace(Choice(8, 2, "outputs", 4, 1), **changes)  # type: ignore[arg-type]
