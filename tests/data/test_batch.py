"""A batch knows what is valid in it, and moves as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from lowtide.data.batch import Batch
from lowtide.errors import LowtideError

LENGTHS = [3, 1, 2]


def make(*, batch_first: bool = True) -> Batch:
    x = torch.arange(24.0).reshape(3, 4, 2)
    y = torch.arange(12).reshape(3, 4)
    return Batch(
        inputs={"x": x if batch_first else x.transpose(0, 1), "z": torch.ones(3, 4)},
        targets=y if batch_first else y.T,
        lengths=torch.tensor(LENGTHS),
        index=torch.tensor([5, 6, 7]),
        start=torch.zeros(3, dtype=torch.int64),
        static=torch.ones(3, 2),
        steps=4,
        batch_first=batch_first,
        per_step=frozenset({"inputs/x", "targets"}),
    )


def as_numpy(batch: Batch) -> Batch:
    return replace(
        batch,
        inputs={name: part.numpy() for name, part in batch.inputs.items()},
        targets=batch.targets.numpy(),
        lengths=batch.lengths.numpy(),
    )


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_the_mask_is_true_on_valid_steps(framework: str, batch_first: bool) -> None:
    batch = make(batch_first=batch_first)
    mask: Any = batch.mask if framework == "torch" else as_numpy(batch).mask
    expected = np.arange(4) < np.asarray(LENGTHS)[:, None]
    np.testing.assert_array_equal(np.asarray(mask), expected if batch_first else expected.T)
    assert (batch.size, batch.valid_steps) == (3, 6)


@pytest.mark.parametrize("batch_first", [True, False])
def test_what_is_per_step_is_packed_and_comes_back(batch_first: bool) -> None:
    batch = make(batch_first=batch_first)
    packed = batch.packed()
    assert isinstance(packed.inputs["x"], PackedSequence)
    assert isinstance(packed.targets, PackedSequence)
    assert packed.inputs["z"] is batch.inputs["z"]
    padded, lengths = pad_packed_sequence(packed.inputs["x"], batch_first=batch_first)
    assert lengths.tolist() == LENGTHS
    mask = batch.mask if batch_first else batch.mask.T
    x = batch.inputs["x"] if batch_first else batch.inputs["x"].transpose(0, 1)
    back = padded if batch_first else padded.transpose(0, 1)
    torch.testing.assert_close(back, (x * mask[:, :, None])[:, :3])
    assert torch.equal(packed.mask, batch.mask)
    assert packed.packed().targets is packed.targets


def test_no_row_is_not_packed() -> None:
    with pytest.raises(LowtideError, match="without rows was to be packed"):
        replace(make(), lengths=torch.zeros(0, dtype=torch.int64)).packed()


def test_a_row_without_steps_is_not_packed() -> None:
    with pytest.raises(LowtideError, match="length 0"):
        replace(make(), lengths=torch.tensor([3, 0, 2])).packed()


def test_data_move_and_what_layers_want_on_the_cpu_stays() -> None:
    moved = replace(make(), weight=torch.ones(3)).to("meta")
    for part in (moved.inputs["x"], moved.inputs["z"], moved.targets, moved.static, moved.weight):
        assert part.device.type == "meta"
    for part in (moved.lengths, moved.index, moved.start):
        assert part.device.type == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_mask_is_there_too() -> None:
    moved = make().pin_memory().to("cuda", non_blocking=True)
    assert moved.mask.device.type == "cuda"
    assert moved.mask.cpu().equal(make().mask)


@pytest.mark.parametrize(
    "act", [lambda batch: batch.to("cpu"), lambda batch: batch.packed(), lambda batch: batch.pin_memory()]
)
def test_numpy_arrays_are_not_moved(act: Any) -> None:  # noqa: ANN401 - a lambda
    with pytest.raises(LowtideError, match="NumPy"):
        act(as_numpy(make()))


def test_bytes_are_those_of_all_arrays() -> None:
    batch = make()
    expected = 24 * 4 + 12 * 4 + 12 * 8 + 3 * 3 * 8 + 6 * 4
    assert batch.nbytes == expected
    assert as_numpy(batch).nbytes == expected


def test_it_shows_its_shapes() -> None:
    assert "6 valid of 12 steps" in repr(make())
    assert "x: float32[3, 4, 2]" in repr(make())
    assert "packed int64[6]" in repr(make().packed())
