"""Whatever training consists of goes through a file, or what would help is said."""
# ruff: noqa: D107 - small models

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide.errors import LowtideError, MissingExtraError
from lowtide.nn.losses import mse
from lowtide.planning.subject import Factory, Subject, read_subject, write_subject
from tests.planning.cases import Tagger, pattern, sample


def subject(model: nn.Module | None = None, loss_fn: Any = mse) -> Subject:  # noqa: ANN401 - a function or a module
    model = model or Tagger()
    return Subject(model, loss_fn, torch.optim.Adam(model.parameters()), pattern(), "float32")


def through_a_file(given: Subject, path: Path, factory: Factory | None = None) -> Subject:
    write_subject(given, path / "subject.pt", factory=factory)
    return read_subject(path / "subject.pt")


def test_everything_comes_back_and_still_belongs_together(tmp_path: Path) -> None:
    given = subject()
    back = through_a_file(given, tmp_path)
    x = sample()[0]
    assert torch.equal(back.model(x), given.model(x))
    assert {id(one) for one in back.model.parameters()} == {id(one) for one in back.optimizer.param_groups[0]["params"]}
    assert back.precision == "float32"
    assert back.pattern.make(3, 5)["inputs"].shape == given.pattern.make(3, 5)["inputs"].shape  # type: ignore[index] # no Batch


def test_the_optimizers_state_comes_back(tmp_path: Path) -> None:
    given = subject()
    given.model(sample()[0]).sum().backward()
    given.optimizer.step()
    back = through_a_file(given, tmp_path)
    assert str(back.optimizer.state_dict()) == str(given.optimizer.state_dict())


def test_lambdas_closures_and_local_models_come_back(tmp_path: Path) -> None:
    scale = 3.0

    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 2)
            self.act: Callable[[Tensor], Tensor] = lambda x: x * scale

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.head(x))

    given = subject(Local(), lambda out, wanted: (out - wanted) * scale)
    back = through_a_file(given, tmp_path)
    x = torch.randn(2, 3, 8)
    assert torch.equal(back.model(x), given.model(x))
    assert torch.equal(back.loss_fn(x, x * 2), (x - x * 2) * scale)


class Locked(Tagger):
    """Holds what cannot be pickled."""

    def __init__(self, *, number: float = 0.5) -> None:
        super().__init__()
        self.lock = threading.Lock()
        nn.init.constant_(self.head.bias, number)


def made() -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    model = Locked(number=0.25)
    return model, mse, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("place", ["model", "loss"])
def test_what_cannot_be_pickled_asks_for_a_factory(place: str, tmp_path: Path) -> None:
    lock = threading.Lock()
    given = subject(Locked()) if place == "model" else subject(loss_fn=lambda out, _: (out, lock)[0])
    with pytest.raises(LowtideError, match="factory=") as refused:
        write_subject(given, tmp_path / "subject.pt")
    assert "lock" in refused.value.what


def test_a_factory_makes_it_anew(tmp_path: Path) -> None:
    back = through_a_file(subject(Locked()), tmp_path, made)
    assert isinstance(back.model, Locked)
    assert isinstance(back.optimizer, torch.optim.SGD)
    assert back.model.head.bias.tolist() == [0.25] * 4
    assert back.pattern.full_steps == 10


def test_a_generator_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="generator"):
        write_subject(subject(loss_fn=(number for number in range(3))), tmp_path / "subject.pt")


def test_pointers_of_libraries_are_refused_too(tmp_path: Path) -> None:
    place = ctypes.pointer(ctypes.c_int(3))
    with pytest.raises(LowtideError, match="pointers"):
        write_subject(subject(loss_fn=lambda out, _: (out, place)[0]), tmp_path / "subject.pt")


def test_writing_changes_neither_model_nor_randomness(tmp_path: Path) -> None:
    given = subject()
    before = {name: value.clone() for name, value in given.model.state_dict().items()}
    drawn = torch.get_rng_state()
    write_subject(given, tmp_path / "subject.pt")
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in given.model.state_dict().items())
    assert not given.optimizer.state


def test_without_cloudpickle_it_is_said_how_to_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"lowtide\[torch\]"):
        write_subject(subject(), tmp_path / "subject.pt")
