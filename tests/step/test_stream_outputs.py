"""Outputs and losses: what is compared, which kinds go together, and what is refused before the first pass."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.nn import Pool
from lowtide.nn.losses import cross_entropy, mse
from tests.step.models import Tagger, gradients, per_step_loss, relative_error

WIDTH, STEPS = 3, 30
INPUTS, TARGETS = torch.randn(2, STEPS, 3, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@dataclass
class Answer:
    """A model's answer."""

    logits: Tensor
    note: str = "nothing"


class Named(NamedTuple):
    """Another."""

    logits: Tensor


class Opaque:
    """A third, in which nothing is found."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Giving(nn.Module):
    """Gives what is made of a layer's outputs."""

    def __init__(self, give: Callable[[Tensor], Any], *, backwards: bool = False) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.pool = Pool("mean")
        self.give = give
        self.backwards = backwards

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401 - that is the point
        return self.give(self.layers(x.flip(0) if self.backwards else x)[0])


CONTAINERS: dict[str, Callable[[Tensor], Any]] = {
    "dataclass": Answer,
    "named tuple": Named,
    "dictionary": lambda x: {"logits": x},
    "list in a tuple": lambda x: ([x], None, 3),
}


def logits(outputs: Any) -> Tensor:  # noqa: ANN401 - any of them
    if isinstance(outputs, (dict, tuple)) and not hasattr(outputs, "logits"):
        outputs = outputs["logits"] if isinstance(outputs, dict) else outputs[0][0]
        assert isinstance(outputs, Tensor)
        return outputs
    found: Tensor = outputs.logits
    return found


@pytest.mark.parametrize("kind", CONTAINERS)
def test_outputs_are_found_in_containers(kind: str) -> None:
    def loss(outputs: object, targets: Tensor) -> Tensor:
        return mse(logits(outputs), targets)

    model = Giving(CONTAINERS[kind]).double()
    loss(model(INPUTS), TARGETS).mean().backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    lowtide.StreamStep(model, loss, chunk_steps=7)(INPUTS, TARGETS)
    assert relative_error(gradients(model), expected) < 1e-12
    with pytest.raises(lowtide.LowtideError, match="Giving"):
        lowtide.StreamStep(Giving(CONTAINERS[kind], backwards=True).double(), loss, chunk_steps=7)(INPUTS, TARGETS)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (Opaque, "Opaque"),
        (lambda x: (x, Opaque(x)), "Opaque"),
        (lambda x: x.argmax(-1), "Tensor"),
        (lambda _: None, "NoneType"),
        (lambda x: nn.utils.rnn.pack_padded_sequence(x, [len(x)] * x.shape[1]), "PackedSequence"),
    ],
)
def test_outputs_that_cannot_be_compared_are_refused(give: Callable[[Tensor], Any], said: str) -> None:
    step = lowtide.StreamStep(Giving(give, backwards=True).double(), lambda o, t: mse(o.logits, t))
    with pytest.raises(lowtide.LowtideError, match=f"outputs hold a {said}"):
        step(INPUTS, TARGETS)


class BothKinds(nn.Module):
    """Gives an output a step and one a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.pool = Pool("mean")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.layers(x)[0]
        return outputs, self.pool(outputs)


def test_a_loss_on_both_kinds_of_outputs_is_refused() -> None:
    model = BothKinds().double()
    with pytest.raises(lowtide.LowtideError, match="each step and of whole sequences"):
        lowtide.StreamStep(model, lambda o, t: mse(o[0] + o[1], t), chunk_steps=7)(INPUTS, TARGETS)
    with pytest.raises(lowtide.LowtideError, match="each step and of whole sequences"):
        lowtide.StreamStep(model, lambda o, t: (o[1] - t).square().mean(-1) + o[0].detach().mean(), chunk_steps=7)(
            INPUTS, TARGETS[0]
        )


@pytest.mark.parametrize("one", [0, 1])
def test_a_loss_on_one_kind_of_outputs_minds_no_other(one: int) -> None:
    model, targets = BothKinds().double(), TARGETS if one == 0 else TARGETS[0]

    def loss(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        return (outputs[one] - targets).square().mean(-1)

    loss(model(INPUTS), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    lowtide.StreamStep(model, loss, chunk_steps=7)(INPUTS, targets)
    assert relative_error(gradients(model), expected) < 1e-12


class Focal(nn.CrossEntropyLoss):
    """A mean over everything."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets).square().mean()


def smooth(outputs: Tensor, targets: Tensor) -> Tensor:
    """Punishes differences between neighbours in time."""
    return per_step_loss(outputs, targets) + outputs.diff(dim=0, append=outputs[-1:]).square().mean(-1)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda o, t: per_step_loss(o, t).mean(), r"shape \(\)"),
        (Focal(), r"shape \(\)"),
        (F.cross_entropy, "lowtide.nn.losses"),
        (lambda o, _: o[..., 99], "loss function fails"),
        (nn.MSELoss(), "do not fit"),
        (mse, "do not fit"),
        (smooth, "other steps"),
    ],
)
def test_a_loss_that_cannot_be_taken_is_refused_before_the_first_pass(loss: Any, said: str) -> None:  # noqa: ANN401
    done: list[int] = []
    inputs, targets = torch.randn(STEPS, 3, 3), torch.randint(4, (STEPS, 3))
    step = lowtide.StreamStep(Tagger(), loss, chunk_steps=4, progress=lambda number, _: done.append(number))
    with pytest.raises(lowtide.LowtideError, match=said):
        step(inputs, targets)
    assert done == []


class OneNumber(nn.Module):
    """Gives one number, in an axis of its own: a step, or a sequence."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.layers = lowtide.nn.GRU(WIDTH, WIDTH)
        self.pool = Pool("last") if pool else nn.Identity()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.pool(self.layers(x)[0]))
        return outputs


@pytest.mark.parametrize("loss", [mse, nn.MSELoss(), nn.L1Loss(), lowtide.nn.losses.huber, lowtide.nn.losses.bce])
@pytest.mark.parametrize("pool", ["", "last"])
def test_an_axis_of_one_feature_is_dropped_and_never_broadcast(pool: str, loss: Any) -> None:  # noqa: ANN401
    torch.manual_seed(0)
    model = OneNumber(pool).double()
    targets = torch.rand(3, dtype=torch.float64) if pool else torch.rand(STEPS, 3, dtype=torch.float64)
    outputs = model(INPUTS)[..., 0]
    loss(outputs, targets).mean().backward()
    expected = gradients(model)
    lowtide.StreamStep(model, loss, chunk_steps=3)(INPUTS, targets)  # a chunk of as many steps as sequences
    assert relative_error(gradients(model), expected) < 1e-12


def test_a_subclass_that_changes_options_alone_is_torchs_loss() -> None:
    class Weighted(nn.CrossEntropyLoss):
        def __init__(self) -> None:
            super().__init__(weight=torch.tensor([0.1, 0.2, 0.3, 0.4]), ignore_index=255)

    torch.manual_seed(0)
    model, loss = Tagger().double(), Weighted().double()
    targets = torch.randint(4, (STEPS, 3))
    targets[3] = 255
    loss(model(INPUTS).flatten(0, 1), targets.flatten()).backward()
    expected = gradients(model)
    lowtide.StreamStep(model, loss, chunk_steps=7)(INPUTS, targets)
    assert relative_error(gradients(model), expected) < 1e-12


def test_parameters_that_the_loss_alone_uses_are_trained_and_protected() -> None:
    torch.manual_seed(0)
    model, head = lowtide.nn.GRU(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()
    fails = False

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return mse(head(outputs), targets)

    def interrupt(done: int, total: int) -> None:
        if fails and done == total:
            raise KeyboardInterrupt

    step = lowtide.StreamStep(model, loss, chunk_steps=7, progress=interrupt)
    loss(model(INPUTS)[0], TARGETS).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(head)
    step(INPUTS, TARGETS)
    assert relative_error(gradients(head), expected) < 1e-12
    fails = True
    with pytest.raises(KeyboardInterrupt):
        step(INPUTS, TARGETS)
    assert all(parameter.grad is None for parameter in head.parameters())
