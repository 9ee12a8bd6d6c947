"""A forward that takes and returns a state is given its own back: whatever its name and shape, in lanes and windows."""
# ruff: noqa: D102, D107 - small models

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.nn.losses import mse
from tests.step.models import gradients, relative_error

WIDTH, HIDDEN, STEPS = 3, 4, 23
NAMES = ("state", "hx", "hidden", "h", "h_0", "states", "prev_state")


def drawn(lanes: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    inputs = torch.randn(STEPS, lanes, WIDTH, dtype=torch.float64)
    return inputs, torch.randn(STEPS, lanes, HIDDEN, dtype=torch.float64)


def stock(layers: int, name: str) -> nn.Module:
    """A model around a stock LSTM whose state argument has that name."""
    space: dict[str, object] = {}
    exec(f"def forward(self, x, {name}=None): return self.layer(x, {name})", space)  # noqa: S102 - a name drawn above
    made = type("Stock", (nn.Module,), {"forward": space["forward"]})()
    made.layer = nn.LSTM(WIDTH, HIDDEN, layers)
    assert isinstance(made, nn.Module)
    return made.double()


def run(model: nn.Module, inputs: Tensor, targets: Tensor, state: Sequence[Tensor] | None) -> list[Tensor]:
    """Add the gradients of a plain backward, and return the state that the layer ends with."""
    outputs, left = model.layer(inputs, state)  # type: ignore[operator] # a layer
    mse(outputs, targets).mean().backward()  # type: ignore[no-untyped-call] # torch ships it so
    return [part.detach() for part in left]


@pytest.mark.parametrize(("lanes", "layers"), [(1, 1), (3, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_states_are_carried_from_chunk_to_chunk_and_from_call_to_call(name: str, lanes: int, layers: int) -> None:
    model, (inputs, targets) = stock(layers, name), drawn(lanes)
    step = lowtide.StreamStep(model, mse, chunk_steps=4, batch_first=False, stateful=True)
    state: list[Tensor] | None = None
    for part in (slice(10), slice(10, 23)):
        state = run(model, inputs[part], targets[part], state)
        expected = gradients(model)
        step(inputs[part], targets[part])
        assert relative_error(gradients(model), expected) < 1e-12


def test_a_lane_begins_anew_where_lanes_and_layers_are_as_many() -> None:
    model, (inputs, targets) = stock(2, "hx"), drawn(2)
    step = lowtide.StreamStep(model, mse, chunk_steps=4, batch_first=False, stateful=True)
    step(inputs[:10], targets[:10])
    state = run(model, inputs[:10], targets[:10], None)
    model.zero_grad()
    kept = torch.tensor([0.0, 1.0], dtype=torch.float64)[None, :, None]
    run(model, inputs[10:], targets[10:], [part * kept for part in state])
    expected = gradients(model)
    step.reset([True, False])
    step(inputs[10:], targets[10:])
    assert relative_error(gradients(model), expected) < 1e-12


def test_windows_carry_it_without_its_gradient() -> None:
    model, (inputs, targets) = stock(1, "hx"), drawn(3)
    state: list[Tensor] | None = None
    for start in range(0, STEPS, 9):
        outputs, left = model.layer(inputs[start : start + 9], state)  # type: ignore[operator] # a layer
        share = mse(outputs, targets[start : start + 9]).sum() / (STEPS * 3)
        share.backward()  # type: ignore[no-untyped-call]
        state = [part.detach() for part in left]
    expected = gradients(model)
    lowtide.StreamStep(model, mse, chunk_steps=4, window_steps=9, batch_first=False)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


def test_other_batch_sizes_between_calls_are_refused() -> None:
    step = lowtide.StreamStep(stock(3, "hx"), mse, batch_first=False, stateful=True)
    step(*drawn(3))
    with pytest.raises(lowtide.LowtideError, match="3 sequences, the batch of 2"):
        step(*drawn(2))


class Loop(nn.Module):
    """A loop over a cell, whose state has no default."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, HIDDEN)

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = []
        for row in x:
            state = self.cell(row, state)
            rows.append(state)
        assert state is not None
        return torch.stack(rows), state


def test_a_state_without_a_default_begins_as_none() -> None:
    model, (inputs, targets) = Loop().double(), drawn(3)
    mse(model(inputs, None)[0], targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    lowtide.StreamStep(model, mse, chunk_steps=4, batch_first=False)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


Parts = dict[str, Tensor | None]


class Learned(Loop):
    """Begins with a learned state, and returns it in a dictionary beside nothing."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.full((HIDDEN,), start))

    def forward(self, x: Tensor, state: Parts | None = None) -> tuple[Tensor, Parts]:  # type: ignore[override]
        before = self.start.expand(x.shape[1], -1) if state is None else state["h"]
        outputs, after = super().forward(x, before)
        return outputs, {"h": after, "none": None}


def test_a_learned_start_is_exact_and_single_lanes_cannot_take_it() -> None:
    model, (inputs, targets) = Learned(0.3).double(), drawn(3)
    mse(model(inputs)[0], targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    step = lowtide.StreamStep(model, mse, chunk_steps=4, batch_first=False, stateful=True)
    step(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12
    step.reset([True, False, False])
    with pytest.raises(lowtide.LowtideError, match="something else than zeros"):
        step(inputs, targets)
    step.reset()
    step(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


class Needs(Loop):
    """Cannot do without a state."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(x, state * 1)


class Two(nn.Module):
    """Takes its state in two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, HIDDEN)

    def forward(self, x: Tensor, h: Tensor | None = None, c: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        state, rows = None if h is None or c is None else (h, c), []
        for row in x:
            state = self.cell(row, state)
            rows.append(state[0])
        assert state is not None
        return torch.stack(rows), *state


class Beside(nn.Module):
    """Passes the state of one layer, and not that of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = lowtide.nn.GRU(WIDTH, HIDDEN), lowtide.nn.GRU(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        outputs, state = self.first(x, hx)
        return self.second(outputs)[0], state


class Counting(Loop):
    """Counts steps in its state."""

    def forward(self, x: Tensor, state: tuple[Tensor, int] | None = None) -> tuple[Tensor, tuple[Tensor, int]]:  # type: ignore[override]
        before, count = (None, 0) if state is None else state
        outputs, after = super().forward(x, before)
        return outputs, (after, count + len(x))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Needs(), r"let state=None stand for the state"),
        (Two(), r"take h and c as one argument.*forward\(x, h=None, c=None\)"),
        (Beside(), r"'second'.*(?s:.*)the argument 'hx'"),
        (Counting(), r"holds a int"),
    ],
)
def test_a_state_that_cannot_be_carried_is_refused_with_the_reason(model: nn.Module, said: str) -> None:
    inputs, targets = (part.float() for part in drawn(3))
    with pytest.raises(lowtide.LowtideError, match=said):
        lowtide.StreamStep(model, lambda o, t: mse(o[0] if isinstance(o, tuple) else o, t), batch_first=False)(
            inputs, targets
        )


def test_an_argument_that_the_data_bring_is_no_state() -> None:
    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = lowtide.nn.GRU(2 * WIDTH, HIDDEN)

        def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
            outputs: Tensor = self.layer(torch.cat([x, memory], -1))[0]
            return outputs, outputs.detach()

    model, (inputs, targets) = Conditioned().double(), drawn(3)
    step = lowtide.StreamStep(model, lambda o, t: mse(o[0], t), chunk_steps=4)
    mse(model(inputs, inputs)[0], targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    for given in ((inputs, inputs), {"memory": inputs, "x": inputs}):
        step(given, targets)
        assert relative_error(gradients(model), expected) < 1e-12
