"""StreamStep adds the gradients that the whole sequence at once would, for every chunk length."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import lowtide
from lowtide.step import _boundaries
from tests.step.models import (
    CELLS,
    CLASSES,
    INPUTS,
    Classifier,
    Tagger,
    gradients,
    per_step_loss,
    relative_error,
    whole_loss,
)


@dataclass(frozen=True)
class Drawn:
    """A model, a batch, and how it is streamed."""

    cell: str
    pool: str
    """Of a classifier; empty for a tagger."""
    batch_first: bool
    lengths: tuple[int, ...]
    gives_lengths: bool
    weights: str
    chunk_steps: int
    keep_chunks: int
    seed: int

    @property
    def steps(self) -> int:
        """Padded steps."""
        return max(self.lengths) + self.gives_lengths  # a step of padding alone

    def model(self) -> nn.Module:
        """The model, in float64."""
        torch.manual_seed(self.seed)
        if self.pool:
            return Classifier(self.pool, batch_first=self.batch_first).double()
        return Tagger(self.cell, batch_first=self.batch_first).double()

    def batch(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Inputs, targets, lengths and weight."""
        generator = torch.Generator().manual_seed(self.seed)
        sequences = len(self.lengths)
        shape = (sequences, self.steps) if self.batch_first else (self.steps, sequences)
        inputs = torch.randn(*shape, INPUTS, generator=generator, dtype=torch.float64)
        targets = torch.randint(CLASSES, (sequences,) if self.pool else shape, generator=generator)
        lengths = torch.tensor(self.lengths) if self.gives_lengths else None
        per_step = self.weights == "step" and not self.pool
        weight = torch.rand(shape if per_step else (sequences,), generator=generator, dtype=torch.float64)
        return inputs, targets, lengths, weight if self.weights != "none" else None


@st.composite
def drawn_cases(draw: st.DrawFn) -> Drawn:
    """Everything that StreamStep can be given."""
    lengths = tuple(draw(st.lists(st.integers(1, 14), min_size=1, max_size=4)))
    gives_lengths = draw(st.booleans())
    return Drawn(
        cell=draw(st.sampled_from(CELLS)),
        pool=draw(st.sampled_from(["", "", "last", "mean", "max", "attention"])),
        batch_first=draw(st.booleans()),
        lengths=(0, *lengths) if gives_lengths and draw(st.booleans()) else lengths,
        gives_lengths=gives_lengths,
        weights=draw(st.sampled_from(["none", "sequence", "step"])),
        chunk_steps=draw(st.integers(1, 15)),
        keep_chunks=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 99)),
    )


@given(drawn_cases())
def test_loss_and_gradients_are_those_of_the_whole_sequences(drawn: Drawn) -> None:
    model = drawn.model()
    inputs, targets, lengths, weight = drawn.batch()
    expected_loss = whole_loss(model, inputs, targets, lengths=lengths, weight=weight, batch_first=drawn.batch_first)
    expected_loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    step = lowtide.StreamStep(
        model,
        lowtide.nn.losses.cross_entropy,
        chunk_steps=drawn.chunk_steps,
        keep_chunks=drawn.keep_chunks,
    )
    loss = step(inputs, targets, lengths=lengths, weight=weight)
    assert float(loss) == pytest.approx(expected_loss.item(), rel=1e-6)
    assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("cell", CELLS)
def test_float32_is_as_exact_as_the_whole_sequence_for_every_chunk_length(cell: str) -> None:
    torch.manual_seed(1)
    precise = Tagger(cell).double()
    model = copy.deepcopy(precise).float()
    inputs, targets = torch.randn(40, 3, INPUTS), torch.randint(CLASSES, (40, 3))
    whole_loss(precise, inputs.double(), targets).backward()  # type: ignore[no-untyped-call]
    reference = gradients(precise)
    whole_loss(model, inputs, targets).backward()  # type: ignore[no-untyped-call]
    allowed = max(2 * relative_error(gradients(model), reference), 1e-5)
    for chunk_steps in range(1, 41):
        lowtide.StreamStep(model, per_step_loss, chunk_steps=chunk_steps)(inputs, targets)
        assert relative_error(gradients(model), reference) < allowed, chunk_steps


def chunks_with_graphs(model: Tagger, inputs: Tensor, targets: Tensor, chunk_steps: int) -> Tensor:
    """The same forward in chunks, written out, with one graph over all of them."""
    hidden, values = None, []
    for start in range(0, len(inputs), chunk_steps):
        part = inputs[start : start + chunk_steps]
        outputs, hidden = model.layers(torch.tanh(model.front(part)), hidden)
        logits = model.head(model.drop(model.norm(outputs)))
        values.append(per_step_loss(logits, targets[start : start + chunk_steps]))
    return torch.cat(values).mean()


@pytest.mark.parametrize("keep_chunks", [0, 2, 100])
@pytest.mark.parametrize("chunk_steps", [1, 4, 7, 23])
@pytest.mark.parametrize("cell", CELLS)
def test_dropout_drops_the_same_in_both_passes(cell: str, chunk_steps: int, keep_chunks: int) -> None:
    torch.manual_seed(2)
    model = Tagger(cell, dropout=0.3).double()
    inputs, targets = torch.randn(23, 3, INPUTS, dtype=torch.float64), torch.randint(CLASSES, (23, 3))
    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=chunk_steps, keep_chunks=keep_chunks)
    for seed in (3, 4):  # the first step also tries the model, which must not draw
        torch.manual_seed(seed)
        expected_loss = chunks_with_graphs(model, inputs, targets, chunk_steps)
        expected_loss.backward()  # type: ignore[no-untyped-call]
        expected, drawn_after = gradients(model), torch.rand(1)
        torch.manual_seed(seed)
        loss = step(inputs, targets)
        assert torch.equal(torch.rand(1), drawn_after), "the generator stands where one forward leaves it"
        assert float(loss) == pytest.approx(expected_loss.item(), rel=1e-6)
        assert relative_error(gradients(model), expected) < 1e-12


def test_dropout_differs_between_steps() -> None:
    model = Tagger(dropout=0.5)
    inputs, targets = torch.randn(12, 3, INPUTS), torch.randint(CLASSES, (12, 3))
    step = lowtide.StreamStep(model, per_step_loss, chunk_steps=5)
    assert float(step(inputs, targets)) != float(step(inputs, targets))


@pytest.mark.parametrize("boundaries", ["memory", "disk", "auto"])
@pytest.mark.parametrize("most_in_memory", [0, 1 << 30])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_wherever_boundary_states_lie_the_gradients_are_bitwise_the_same(
    boundaries: str, most_in_memory: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    model = Tagger(dropout=dropout)
    inputs, targets = torch.randn(50, 3, INPUTS), torch.randint(CLASSES, (50, 3))

    def run(place: str) -> dict[str, Tensor]:
        torch.manual_seed(6)
        lowtide.StreamStep(model, per_step_loss, chunk_steps=3, boundaries=place)(inputs, targets)  # type: ignore[arg-type]
        return gradients(model)

    expected = run("memory")
    monkeypatch.setattr(_boundaries, "MOST_IN_MEMORY", most_in_memory)
    torch.testing.assert_close(run(boundaries), expected, rtol=0, atol=0)


def test_a_layer_called_twice_in_a_forward_carries_two_states() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = lowtide.nn.GRU(INPUTS, INPUTS)

        def forward(self, x: Tensor) -> Tensor:
            once, _ = self.layer(x)
            twice: Tensor = self.layer(once)[0]
            return twice

    model = Twice().double()
    inputs, targets = torch.randn(2, 11, 3, INPUTS, dtype=torch.float64)
    lowtide.nn.losses.mse(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    lowtide.StreamStep(model, lowtide.nn.losses.mse, chunk_steps=4)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


def test_a_learned_initial_state_counts_at_the_first_chunk_alone() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.randn(2, 1, HIDDEN_UNITS))
            self.layer = lowtide.nn.LSTM(INPUTS, HIDDEN_UNITS)

        def forward(self, x: Tensor) -> Tensor:
            h, c = self.start.expand(2, x.shape[1], -1).unsqueeze(1).contiguous()
            outputs: Tensor = self.layer(x, (h, c))[0]
            return outputs

    model = Learned().double()
    inputs = torch.randn(11, 3, INPUTS, dtype=torch.float64)
    targets = torch.randn(11, 3, HIDDEN_UNITS, dtype=torch.float64)
    lowtide.nn.losses.mse(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    lowtide.StreamStep(model, lowtide.nn.losses.mse, chunk_steps=4)(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


HIDDEN_UNITS = 6


class CellLoop(nn.Module):
    """Takes a state and returns it: a loop over a stock cell."""

    def __init__(self) -> None:  # noqa: D107
        super().__init__()
        self.cell = nn.LSTMCell(INPUTS, HIDDEN_UNITS)

    def forward(  # noqa: D102
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = []
        for row in x:
            state = self.cell(row, state)
            rows.append(state[0])
        assert state is not None
        return torch.stack(rows), state


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("kind", ["loop", "stock", "lean"])
def test_a_forward_that_takes_and_returns_a_state_is_given_its_own_back(kind: str, *, stateful: bool) -> None:
    made = {"loop": CellLoop, "stock": nn.LSTM, "lean": lowtide.nn.LSTM}[kind]
    model = (made() if kind == "loop" else made(INPUTS, HIDDEN_UNITS)).double()
    inputs = torch.randn(11, 3, INPUTS, dtype=torch.float64)
    targets = torch.randn(11, 3, HIDDEN_UNITS, dtype=torch.float64)
    lowtide.nn.losses.mse(model(inputs)[0], targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    step = lowtide.StreamStep(model, lowtide.nn.losses.mse, chunk_steps=4, batch_first=False, stateful=stateful)
    step(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12


def test_windows_are_truncated_back_propagation_with_a_carried_state() -> None:
    torch.manual_seed(7)
    model = Tagger().double()
    inputs, targets = torch.randn(23, 3, INPUTS, dtype=torch.float64), torch.randint(CLASSES, (23, 3))
    hidden = None
    for start in range(0, 23, 9):
        outputs, hidden = model.layers(torch.tanh(model.front(inputs[start : start + 9])), hidden)
        values = per_step_loss(model.head(model.norm(outputs)), targets[start : start + 9])
        (values.sum() / (23 * 3)).backward()  # type: ignore[no-untyped-call]
        hidden = tuple(part.detach() for part in hidden)
    expected = gradients(model)
    for chunk_steps in (2, 9, 50):
        step = lowtide.StreamStep(model, per_step_loss, chunk_steps=chunk_steps, window_steps=9)
        step(inputs, targets)
        assert relative_error(gradients(model), expected) < 1e-12


class Rotating(nn.Module):
    """A diagonal recurrence of complex numbers, written with the protocol."""

    def __init__(self) -> None:  # noqa: D107
        super().__init__()
        self.decay, self.angle = nn.Parameter(torch.tensor([0.9, 0.8])), nn.Parameter(torch.tensor([0.3, 1.0]))
        self.front = nn.Linear(INPUTS, 2)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        turn, rows = torch.polar(self.decay, self.angle), []
        (level,) = lowtide.nn.carry_in(self, (torch.zeros(x.shape[1], 2, dtype=turn.dtype),))
        for row in self.front(x):
            level = turn * level + row
            rows.append(level.real)
        lowtide.nn.carry_out(self, (level,))
        return torch.stack(rows)


@pytest.mark.parametrize("keep_chunks", [0, 2])
def test_complex_states_carry_their_gradients(keep_chunks: int) -> None:
    torch.manual_seed(8)
    model = Rotating().double()
    inputs, targets = torch.randn(23, 3, INPUTS, dtype=torch.float64), torch.randn(23, 3, 2, dtype=torch.float64)
    lowtide.nn.losses.mse(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
    expected = gradients(model)
    step = lowtide.StreamStep(model, lowtide.nn.losses.mse, chunk_steps=5, keep_chunks=keep_chunks, batch_first=False)
    step(inputs, targets)
    assert relative_error(gradients(model), expected) < 1e-12
