"""StreamStep in training: data on disk, state between calls, failures, precision, data-parallel ranks."""
# ruff: noqa: D107 - small models

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn.losses import mse
from tests.step.models import CLASSES, INPUTS, Classifier, Tagger, gradients, per_step_loss, relative_error, whole_loss

STEPS, BATCH = 23, 3


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    torch.manual_seed(1)
    return torch.randn(STEPS, BATCH, INPUTS, dtype=dtype), torch.randint(CLASSES, (STEPS, BATCH))


def expected_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """By a plain backward over the whole sequences."""
    whole_loss(model, inputs, targets).backward()  # type: ignore[no-untyped-call]
    return gradients(model)


# ---- data ------------------------------------------------------------------------------------------------------------


class OnDisk:
    """An array that can only be sliced along time, and notes how much of it was asked for at once."""

    def __init__(self, array: npt.NDArray[np.generic]) -> None:
        self.array = array
        self.shape = array.shape
        self.most = 0

    def __getitem__(self, key: slice) -> npt.NDArray[np.generic]:
        part = self.array[key]
        self.most = max(self.most, len(part))
        return part


def test_arrays_on_disk_are_read_one_chunk_at_a_time(tmp_path: Path) -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    expected = expected_gradients(model, inputs, targets)
    np.save(tmp_path / "x.npy", inputs.numpy())
    np.save(tmp_path / "y.npy", targets.numpy())
    mapped = [OnDisk(np.load(tmp_path / name, mmap_mode="r")) for name in ("x.npy", "y.npy")]
    lowtide.StreamStep(model, per_step_loss, chunk_steps=13)(*mapped)
    assert relative_error(gradients(model), expected) < 1e-12
    assert [one.most for one in mapped] == [13, 13]


def test_structures_of_inputs_reach_the_forward_as_it_wants_them() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(2 * INPUTS, INPUTS)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            outputs: Tensor = self.layers(torch.cat([left, right], -1))[0]
            return outputs

    class Pair(Both):
        def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
            return super().forward(*pair)

    left, right, targets = torch.randn(3, STEPS, BATCH, INPUTS, dtype=torch.float64)
    model, taking_pairs = Both().double(), Pair().double()
    taking_pairs.load_state_dict(model.state_dict())
    mse(model(left, right), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    for module, given in (
        (model, (left, right)),
        (model, {"right": right.numpy(), "left": left}),
        (taking_pairs, (left, right)),
    ):
        lowtide.StreamStep(module, mse, chunk_steps=7)(given, targets)
        assert relative_error(gradients(module), expected) < 1e-12


def test_a_forward_with_lengths_is_given_those_of_the_chunk() -> None:
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(INPUTS, CLASSES)
            self.seen: list[list[int]] = []

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            self.seen.append(lengths.tolist())
            outputs: Tensor = self.layers(x, lengths=lengths)[0]
            return outputs

    model = Asking()
    step = lowtide.StreamStep(model, mse, chunk_steps=10)
    step(torch.randn(STEPS, BATCH, INPUTS), torch.randn(STEPS, BATCH, CLASSES), lengths=[23, 11, 3])
    assert model.seen[-3:] == [[3, 0, 0], [10, 1, 0], [10, 10, 3]]


# ---- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_are_added_to_those_that_are_there() -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    expected = expected_gradients(model, inputs, targets)
    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=7)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    tensors = [parameter.grad for parameter in model.parameters()]
    step(inputs, targets)
    assert all(parameter.grad is tensor for parameter, tensor in zip(model.parameters(), tensors, strict=True))
    found = {name: gradient - 2.0 for name, gradient in gradients(model).items()}
    assert relative_error(found, expected) < 1e-12


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("after", [1, 3, 4, 5, 6])
def test_an_exception_in_the_middle_leaves_gradients_as_they_were(error: type[BaseException], after: int) -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    with_gradient, *without = model.parameters()
    with_gradient.grad = torch.ones_like(with_gradient)
    kept = with_gradient.grad
    raising = True

    def interrupt(done: int, _total: int) -> None:
        if done == after and raising:
            raise error

    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=7, progress=interrupt)
    with pytest.raises(error):
        step(inputs, targets)
    assert with_gradient.grad is kept
    assert torch.equal(kept, torch.ones_like(kept))
    assert all(parameter.grad is None for parameter in without)
    raising = False
    model.zero_grad()
    step(inputs, targets)
    assert relative_error(gradients(model), expected_gradients(model, inputs, targets)) < 1e-12


def test_progress_counts_the_chunks_of_both_passes() -> None:
    inputs, targets = drawn()
    for keep_chunks, total in ((0, 7), (2, 6), (9, 4)):
        told: list[tuple[int, int]] = []

        def tell(done: int, of: int, told: list[tuple[int, int]] = told) -> None:
            told.append((done, of))

        lowtide.StreamStep(
            Tagger().double(),
            per_step_loss,
            chunk_steps=7,
            keep_chunks=keep_chunks,
            progress=tell,
        )(inputs, targets)
        assert told == [(number, total) for number in range(1, total + 1)]


def test_a_hook_that_would_run_on_parts_of_a_gradient_is_refused() -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    model.head.weight.register_post_accumulate_grad_hook(lambda _: None)  # type: ignore[no-untyped-call]
    with pytest.raises(lowtide.LowtideError, match="hook"):
        lowtide.StreamStep(model, per_step_loss)(inputs, targets)


def test_sparse_gradients_of_an_embedding_add_up() -> None:
    class Words(nn.Module):
        def __init__(self, *, sparse: bool) -> None:
            super().__init__()
            self.embedding = nn.Embedding(9, INPUTS, sparse=sparse)
            self.layers = lowtide.nn.GRU(INPUTS, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layers(self.embedding(x))[0]
            return outputs

    torch.manual_seed(0)
    inputs, (_, targets) = torch.randint(9, (STEPS, BATCH)), drawn()
    dense, sparse = Words(sparse=False).double(), Words(sparse=True).double()
    sparse.load_state_dict(dense.state_dict())
    for _ in range(2):
        for model in (dense, sparse):
            lowtide.StreamStep(model, per_step_loss, chunk_steps=7)(inputs, targets)
    assert sparse.embedding.weight.grad is not None
    assert sparse.embedding.weight.grad.is_sparse
    torch.testing.assert_close(sparse.embedding.weight.grad.to_dense(), dense.embedding.weight.grad)


# ---- state between calls ---------------------------------------------------------------------------------------------


def test_a_stateful_step_goes_on_where_the_call_before_ended_also_after_saving() -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    windows = lowtide.StreamStep(model, per_step_loss, window_steps=10, chunk_steps=4)
    windows(inputs[:20], targets[:20])
    expected = gradients(model)
    first = lowtide.StreamStep(model, per_step_loss, chunk_steps=4, stateful=True)
    assert first.state is None
    first(inputs[:10], targets[:10])
    saved = io.BytesIO()
    torch.save(first.state, saved)
    saved.seek(0)
    second = lowtide.StreamStep(model, per_step_loss, chunk_steps=4, stateful=True)
    second.state = torch.load(saved, weights_only=True)
    second(inputs[10:20], targets[10:20])
    found = {name: gradient / 2 for name, gradient in gradients(model).items()}  # two means over half the steps
    assert relative_error(found, expected) < 1e-12
    second.reset()
    assert second.state is None


def test_a_lane_can_begin_anew() -> None:
    inputs, targets = drawn()
    model = Classifier("mean").double()
    kinds = targets[0]
    lanes = torch.tensor([False, True, False])
    step = lowtide.StreamStep(model, lowtide.nn.losses.cross_entropy, chunk_steps=4, stateful=True)
    step(inputs[:10], kinds)
    model.zero_grad()
    step.reset(lanes)
    step(inputs[10:], kinds)
    found = gradients(model)
    total = {name: torch.zeros_like(gradient) for name, gradient in found.items()}
    for lane in range(BATCH):
        alone = lowtide.StreamStep(model, lowtide.nn.losses.cross_entropy, chunk_steps=4, stateful=True)
        if not lanes[lane]:
            alone(inputs[:10, lane : lane + 1], kinds[lane : lane + 1])
            model.zero_grad()
        alone(inputs[10:, lane : lane + 1], kinds[lane : lane + 1])
        for name, gradient in gradients(model).items():
            total[name] += gradient / BATCH
    assert relative_error(found, total) < 1e-12


def test_a_state_of_another_model_is_refused() -> None:
    step = lowtide.StreamStep(Tagger(), per_step_loss, stateful=True)
    with pytest.raises(lowtide.LowtideError, match="decoder"):
        step.state = {"decoder:0": (torch.zeros(1, BATCH, 5),)}


def test_a_state_of_another_batch_size_is_refused() -> None:
    inputs, targets = drawn(torch.float32)
    step = lowtide.StreamStep(Tagger(), per_step_loss, stateful=True)
    step(inputs, targets)
    with pytest.raises(lowtide.LowtideError, match="sequences"):
        step(inputs[:, :2], targets[:, :2])


# ---- precision, compilers, ranks -------------------------------------------------------------------------------------


def test_under_autocast_the_gradients_are_those_of_the_whole_sequences_under_autocast() -> None:
    inputs, targets = drawn(torch.float32)
    model = Tagger()
    with torch.autocast("cpu", torch.bfloat16):
        loss = whole_loss(model, inputs, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    with torch.autocast("cpu", torch.bfloat16):
        found_loss = lowtide.StreamStep(model, per_step_loss, chunk_steps=7)(inputs, targets)
    assert float(found_loss) == pytest.approx(float(loss), rel=1e-2)
    assert relative_error(gradients(model), expected) < 0.03


def test_a_grad_scaler_scales_gradients_and_not_the_loss() -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    expected = expected_gradients(model, inputs, targets)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loss = lowtide.StreamStep(model, per_step_loss, chunk_steps=7, grad_scaler=scaler)(inputs, targets)
    assert float(loss) == pytest.approx(float(whole_loss(model, inputs, targets)), rel=1e-6)
    scaler.unscale_(optimizer)
    assert relative_error(gradients(model), expected) < 1e-12


def test_a_compiled_model_is_streamed() -> None:
    inputs, targets = drawn()
    model = Tagger().double()
    expected = expected_gradients(model, inputs, targets)
    lowtide.StreamStep(torch.compile(model, backend="eager"), per_step_loss, chunk_steps=7)(inputs, targets)  # type: ignore[arg-type]
    assert relative_error(gradients(model), expected) < 1e-12


RANKS = """
import os, sys, torch, torch.distributed as dist
import lowtide
from tests.step.models import *

rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(0)
model = Tagger().double()
inputs, targets = torch.randn(23, 4, INPUTS, dtype=torch.float64), torch.randint(CLASSES, (23, 4))
lengths = torch.tensor([23, 9, 5, 1])
whole_loss(model, inputs, targets, lengths=lengths).backward()
expected = gradients(model)
wrapped = torch.nn.parallel.DistributedDataParallel(model)
step = lowtide.StreamStep(wrapped, per_step_loss, chunk_steps=4)
own = slice(2 * rank, 2 * rank + 2)
for _ in range(2):  # the second time on top of the first
    loss = step(inputs[:, own], targets[:, own], lengths=lengths[own])
found = {name: gradient / 2 for name, gradient in gradients(model).items()}
assert relative_error(found, expected) < 1e-12, relative_error(found, expected)
expected_loss = float(whole_loss(model, inputs, targets, lengths=lengths))
assert abs(float(loss) - expected_loss) < 1e-6, (loss, expected_loss)
wrapped(inputs).sum().backward()  # and torch's own exchange still works
dist.destroy_process_group()
os._exit(0)  # gloo's threads may abort a process that ends by itself
"""


def test_two_ranks_get_the_gradients_of_one_process_with_every_valid_step_counting_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANKS]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


# ---- what truncation cannot learn ------------------------------------------------------------------------------------


def test_large_vocabularies_never_have_all_their_logits() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = lowtide.nn.GRU(INPUTS, 8)
            self.head = nn.Linear(8, 50)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.layers(x)[0]
            return outputs

    torch.manual_seed(0)
    model = Features().double()
    inputs, targets = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64), torch.randint(50, (STEPS, BATCH))
    targets[3] = -100
    nn.CrossEntropyLoss()(model.head(model(inputs)).flatten(0, 1), targets.flatten()).backward()
    expected = gradients(model)
    loss = lowtide.nn.losses.LinearCrossEntropy(model.head, block_rows=5)
    lowtide.StreamStep(model, loss, chunk_steps=7)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12
