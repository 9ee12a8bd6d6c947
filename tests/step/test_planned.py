"""PlannedStep adds the gradients of the undivided batch, however a plan divides it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import lowtide
from lowtide.nn._context import current_context
from lowtide.nn.losses import cross_entropy, mse
from lowtide.ops.spec import KEEPS, Keep
from lowtide.step import Choice
from tests.step.models import CELLS, gradients, relative_error
from tests.step.planned_cases import CLASSES, IGNORED, Data, Labels, Plan, plain_run, planned, undivided


@dataclass(frozen=True)
class Drawn:
    """A model, a batch, and how it is divided."""

    cell: str
    layers: int
    both_ways: bool
    pool: str
    lean: bool
    data: Data
    class_weights: bool
    rows: int
    keep: Keep | None
    chunk_steps: int | None
    keep_chunks: int

    def model(self) -> nn.Module:
        """The model, in float64."""
        torch.manual_seed(self.data.seed)
        model = Labels(
            self.cell,
            layers=self.layers,
            both_ways=self.both_ways,
            pool=self.pool,
            batch_first=self.data.batch_first,
        ).double()
        return lowtide.lean(model) if self.lean else model


@st.composite
def drawn_cases(draw: st.DrawFn) -> Drawn:
    """Everything that a plan can choose, and that a batch can be."""
    chunk_steps = draw(st.none() | st.integers(1, 12))
    pool = draw(st.sampled_from(["", "", "last", "mean", "max"]))
    both_ways = chunk_steps is None and draw(st.booleans())
    lengths = draw(st.lists(st.integers(1 if pool else 0, 11), min_size=1, max_size=6).filter(any))
    lengths = [max(lengths), *lengths]  # the first target of all always counts
    return Drawn(
        cell=draw(st.sampled_from(CELLS)),
        layers=draw(st.integers(1, 2)),
        both_ways=both_ways,
        pool=pool,
        lean=chunk_steps is not None or both_ways or bool(pool) or draw(st.booleans()),
        data=Data(
            tuple(lengths),
            batch_first=draw(st.booleans()),
            per_step=not pool,
            weights=draw(st.sampled_from(["none", "sequence", "step"])),
            ignores=draw(st.booleans()),
            padding=draw(st.integers(0, 2)),
            seed=draw(st.integers(0, 99)),
        ),
        class_weights=draw(st.booleans()),
        rows=draw(st.integers(1, len(lengths) + 1)),
        keep=draw(st.none() | st.sampled_from(KEEPS)),
        chunk_steps=chunk_steps,
        keep_chunks=draw(st.integers(0, 3)),
    )


@given(drawn_cases())
def test_loss_and_gradients_are_those_of_the_undivided_batch(drawn: Drawn) -> None:
    model, data = drawn.model(), drawn.data
    class_weight = torch.linspace(0.5, 2, CLASSES, dtype=torch.float64) if drawn.class_weights else None
    expected_loss, expected = undivided(model, data, class_weight=class_weight)
    loss_fn = nn.CrossEntropyLoss(weight=class_weight, ignore_index=IGNORED)
    plan = planned(drawn.rows, keep=drawn.keep, chunk_steps=drawn.chunk_steps, keep_chunks=drawn.keep_chunks)
    step = lowtide.PlannedStep(model, loss_fn, plan)
    loss = step(data.batch())
    assert not loss.requires_grad
    assert loss.shape == ()
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-9)
    assert relative_error(gradients(model), expected) < 1e-10


@pytest.mark.parametrize("chunk_steps", [None, 4])
def test_a_loss_that_sums_is_divided_by_nothing(chunk_steps: int | None) -> None:
    data, model = Data((9, 2, 5)), lowtide.lean(Labels().double())
    total, _ = plain_run(lowtide.stock(model), data)
    total.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    step = lowtide.PlannedStep(
        lowtide.lean(model), nn.CrossEntropyLoss(reduction="sum"), planned(2, chunk_steps=chunk_steps)
    )
    assert float(step(data.batch())) == pytest.approx(float(total.detach()))
    assert relative_error(gradients(model), expected) < 1e-12


RIGHT, ROWS = "right", 2
FAULTS = ["zeroed inside of the loop", "divided by the micro-batches", "tail dropped", "micro-batches weighed equally"]


def divided_by_hand(model: nn.Module, data: Data, fault: str) -> dict[str, Tensor]:
    """A loop over micro-batches as they are usually written, with one fault or none."""
    groups = [range(start, min(start + ROWS, len(data.lengths))) for start in range(0, len(data.lengths), ROWS)]
    counted = [plain_run(model, data, numbers=group)[1].detach() for group in groups]
    for number, group in enumerate(groups):
        if fault == "tail dropped" and len(group) < ROWS:
            continue
        total, count = plain_run(model, data, numbers=group)
        divisor = {
            "divided by the micro-batches": sum(counted) * len(groups),
            "micro-batches weighed equally": count.detach() * len(groups),
        }.get(fault, sum(counted))
        if fault == "zeroed inside of the loop" and number:
            model.zero_grad()
        (total / divisor).backward()  # type: ignore[no-untyped-call] # torch ships it so
    return gradients(model)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_usual_faults_do_not_pass_the_comparison(fault: str) -> None:
    data, model = Data((9, 8, 4, 3, 2)), Labels().double()
    _, expected = undivided(model, data)
    assert relative_error(divided_by_hand(model, data, RIGHT), expected) < 1e-12
    assert relative_error(divided_by_hand(model, data, fault), expected) > 1e-2
    lowtide.PlannedStep(model, cross_entropy, planned(ROWS))(data.batch())
    assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("chunk_steps", [None, 3])
def test_gradients_are_added_to_those_before(chunk_steps: int | None) -> None:
    data, model = Data((9, 2, 5)), lowtide.lean(Labels().double())
    _, expected = undivided(model, data)
    step = lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=chunk_steps))
    step(data.batch())
    kept = [parameter.grad for parameter in model.parameters()]
    step(data.batch())
    assert all(parameter.grad is grad for parameter, grad in zip(model.parameters(), kept, strict=True))
    assert relative_error(gradients(model), {name: 2 * grad for name, grad in expected.items()}) < 1e-12


def test_the_first_choice_that_is_long_enough_is_taken() -> None:
    seen: list[tuple[int, int]] = []

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            if self.training and torch.is_grad_enabled():
                seen.append((x.shape[1], x.shape[0]))
            return super().forward(x)

    model = lowtide.lean(Watched())
    step = lowtide.PlannedStep(model, cross_entropy, Plan((Choice(4, 8, None), Choice(9, 2, None))))
    for lengths, expected in (((4, 4, 4), [(3, 4)]), ((5, 5, 5), [(2, 5), (1, 5)]), ((9, 9), [(2, 9)])):
        inputs, targets, *_ = Data(lengths, padding=0).batch()
        step((inputs.float(), targets))
        seen.clear()
        step((inputs.float(), targets))
        assert seen == expected


def test_micro_batches_hold_like_lengths_and_no_more_padding_than_they_need() -> None:
    seen: list[tuple[int, ...]] = []

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(tuple(x.shape[:2]))
            return super().forward(x)

    model = lowtide.lean(Watched(batch_first=True).double())
    data = Data((2, 9, 1, 8, 5), batch_first=True, padding=6)
    step = lowtide.PlannedStep(model, cross_entropy, planned(2))
    step(data.batch())
    seen.clear()
    step(data.batch())
    assert seen == [(2, 9), (2, 5), (1, 1)]


@pytest.mark.parametrize("lengths", [(7, 7, 7, 7, 7), (7, 6, 6, 2, 1)])
def test_without_sorting_micro_batches_are_views_of_the_batch(lengths: tuple[int, ...]) -> None:
    seen: list[Tensor] = []

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return super().forward(x)

    model, data = lowtide.lean(Watched(batch_first=True).double()), Data(lengths, batch_first=True)
    step = lowtide.PlannedStep(model, cross_entropy, planned(2))
    step(data.batch())
    seen.clear()
    step(data.batch())
    whole = data.tensors["inputs"].untyped_storage().data_ptr()
    assert [x.untyped_storage().data_ptr() for x in seen] == [whole] * 3


@pytest.mark.parametrize("chunk_steps", [None, 3])
def test_random_modules_draw_on(chunk_steps: int | None) -> None:
    class Dropping(Labels):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(nn.functional.dropout(x, 0.5, self.training))

    data, model = Data((9, 2, 5)), lowtide.lean(Dropping().double())
    step = lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=chunk_steps))
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        first, second = step(data.batch()), step(data.batch())
        assert float(first) != float(second)
        found.append((float(first), float(second)))
    assert found[0] == found[1], "trying the model draws nothing, so the first step is as any other"
    model.eval()
    assert float(step(data.batch())) == float(step(data.batch()))


def test_nothing_of_a_micro_batch_is_alive_at_the_next_forward() -> None:
    alive: list[weakref.ref[Tensor]] = []
    counts: list[int] = []

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            counts.append(sum(one() is not None for one in alive))
            hidden = self.layers(x)[0]
            logits: Tensor = self.head(hidden)
            alive.extend([weakref.ref(hidden), weakref.ref(logits)])
            return logits

    model, data = lowtide.lean(Watched().double()), Data((9, 9, 9, 9))
    step = lowtide.PlannedStep(model, cross_entropy, planned(1))
    step(data.batch())
    counts.clear()
    step(data.batch())
    assert counts == [0, 0, 0, 0]


def test_values_that_grow_from_any_parameter_of_the_loss_are_differentiated() -> None:
    scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    model, data = lowtide.lean(Labels().double()), Data((9, 2, 5))

    def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
        return scale * cross_entropy(outputs, targets)

    found: list[Tensor] = []
    for rows in (1, 3):
        lowtide.PlannedStep(model, scaled, planned(rows))(data.batch())
        found.append(torch.zeros(()) if scale.grad is None else scale.grad)
        scale.grad = None
    torch.testing.assert_close(*found)
    expected, _ = undivided(model, data)
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize("loss", [nn.MSELoss(), lowtide.nn.losses.mae, lambda o, t: (o - t).square().mean(-1)])
def test_regression_of_several_features_is_the_mean_over_steps(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    data, model = Data((9, 2, 5)), lowtide.lean(Labels().double())
    targets = torch.randn(10, 3, CLASSES, dtype=torch.float64)
    values = []
    for number, length in enumerate(data.lengths):
        outputs = model(data.sequence(number)[0])
        errors = outputs - targets[:length, number : number + 1]
        values.append((errors.abs() if loss is lowtide.nn.losses.mae else errors.square()).mean(-1))
    expected_loss = torch.cat(values).mean()
    expected_loss.backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    inputs, _, lengths, _ = data.batch()
    assert float(lowtide.PlannedStep(model, loss, planned(2))((inputs, targets, lengths))) == pytest.approx(
        float(expected_loss.detach())
    )
    assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("lengths", [(5, 3, 1, 2), (8, 5, 1, 2), (5, 5, 5, 5)])
def test_as_many_features_a_sequence_as_steps_are_no_steps(lengths: tuple[int, ...], padding: int) -> None:
    data = Data(lengths, batch_first=True, per_step=False, padding=padding)
    model = lowtide.lean(Labels(pool="mean", batch_first=True).double())
    targets = torch.randn(4, CLASSES, dtype=torch.float64)
    outputs = torch.cat([model(data.sequence(number)[0]) for number in range(4)])
    (outputs - targets).square().mean().backward()  # type: ignore[no-untyped-call] # torch ships it so
    expected = gradients(model)
    for rows in (1, 2, 4):
        lowtide.PlannedStep(model, mse, planned(rows))((data.tensors["inputs"], targets, data.tensors["lengths"]))
        assert relative_error(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("chunk_steps", [None, 3])
def test_layers_keep_what_the_plan_says(chunk_steps: int | None) -> None:
    seen: set[str | None] = set()

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            seen.add(current_context().keep)
            return super().forward(x)

    model, data = lowtide.lean(Watched().double()), Data((9, 2, 5))
    for keep in (*KEEPS, None):
        step = lowtide.PlannedStep(model, cross_entropy, planned(2, keep=keep, chunk_steps=chunk_steps))
        step(data.batch())
        seen.clear()
        step(data.batch())
        assert seen == {"gates" if keep is None and chunk_steps else keep}


def test_streams_run_in_the_chunks_that_the_plan_says_and_as_often() -> None:
    seen: list[int] = []

    class Watched(Labels):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    model, data = lowtide.lean(Watched().double()), Data((9, 2, 5))
    for keep_chunks, expected in ((0, [4, 4, 1, 4, 4, 2]), (2, [4, 4, 1, 4, 2]), (9, [4, 4, 1, 2])):
        step = lowtide.PlannedStep(model, cross_entropy, planned(2, chunk_steps=4, keep_chunks=keep_chunks))
        step(data.batch())
        seen.clear()
        step(data.batch())
        assert sorted(seen) == sorted(expected)
