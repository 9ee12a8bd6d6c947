"""What does not belong together is refused before anything runs; ways of running are those that the model has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lowtide.errors import LowtideError
from lowtide.nn.losses import mse
from lowtide.planning.manner import Manner
from lowtide.planning.task import Task
from lowtide.planning.workload import Workload, read_workload
from tests.planning.cases import Tagger, sample


def task(model: nn.Module | None = None, **changed: Any) -> Task:  # noqa: ANN401 - arguments of Task.of
    model = model or Tagger()
    optimizer = changed.pop("optimizer", None) or torch.optim.Adam(model.parameters())
    given: dict[str, Any] = {"budget": None, "precision": "float32", "device": None, "factory": None}
    return Task.of(model, mse, optimizer, **(given | changed))


def workload(model: nn.Module, longest: int) -> Workload:
    return read_workload(model, sample=sample(), lengths=[3, longest], batch_size=2)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"precision": "float16"}, "float16"),
        ({"budget": "much"}, "much"),
        ({"device": "meta"}, "meta"),
        ({"device": "cpu:1"}, "cpu:1"),
        ({"device": "gpu"}, "gpu"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters())}, "none of the model's parameters"),
    ],
)
def test_what_does_not_belong_together_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(LowtideError) as refused:
        task(**changed)
    assert named in refused.value.what


def test_a_model_on_two_devices_is_refused() -> None:
    with pytest.raises(LowtideError, match="cpu, meta"):
        task(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")))


def test_the_device_is_the_models_and_may_be_named() -> None:
    assert task().device == task(device="cpu").device == task(device="cpu:0").device == torch.device("cpu")


@pytest.mark.parametrize(
    ("model", "keeps"),
    [
        (Tagger(), ["gates", "outputs"]),
        (Tagger(layers=2), ["gates", "outputs", "boundaries"]),
        (Tagger(lean=False), [None]),
        (nn.Linear(8, 4), [None]),
    ],
)
def test_whole_sequences_run_as_lean_layers_can_keep(model: nn.Module, keeps: list[str | None]) -> None:
    assert [manner.keep for manner in task(model).whole_manners()] == keeps
    assert all(manner.chunk_steps is None for manner in task(model).whole_manners())


def test_streams_have_chunks_shorter_than_the_longest_sequence() -> None:
    model = Tagger()
    for longest, chunks in ((20, []), (100, [32]), (5000, [512, 128, 32])):
        assert task(model).stream_manners(workload(model, longest)) == [Manner(None, chunk) for chunk in chunks]


def test_what_has_no_time_is_not_streamed() -> None:
    model = nn.Linear(700, 4)
    given = read_workload(model, sample=(torch.randn(3, 700), torch.randn(3, 4)), batch_size=4)
    assert not task(model).is_sequential(given)
    assert task(model).stream_manners(given) == []


def test_bytes_of_trained_parameters_are_counted() -> None:
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 5, bias=False))
    model[0].requires_grad_(requires_grad=False)
    assert task(model).parameter_bytes == 10 * 5 * 4


def test_copies_are_made_where_the_optimizer_is_told_to() -> None:
    model = Tagger()
    assert task(model, optimizer=torch.optim.Adam(model.parameters(), foreach=True)).copies_for_foreach
    assert not task(model, optimizer=torch.optim.Adam(model.parameters(), foreach=False)).copies_for_foreach
    assert not task(model).copies_for_foreach  # on the CPU torch works on one after the other unless told
