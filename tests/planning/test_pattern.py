"""A batch of any size is made after the likeness of a sample, in whatever form it was given."""
# ruff: noqa: D102, D107 - a small model

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.data import Batch, Schema
from lowtide.errors import LowtideError
from lowtide.planning.pattern import Pattern, read_pattern
from lowtide.step._sequence import leaves
from tests.data.loading_cases import LABELLED, SCHEMA
from tests.data.loading_cases import told as stored
from tests.step.planned_cases import planned

VOCABULARY, WIDTH = 11, 3
SIZES = st.integers(1, 70)
FEW = settings(max_examples=20)


def parts(rows: int, steps: int, *, batch_first: bool = True) -> dict[str, Any]:
    shape = (rows, steps) if batch_first else (steps, rows)
    return {
        "inputs": torch.randint(VOCABULARY, shape),
        "targets": torch.randn(*shape, WIDTH),
        "lengths": torch.full((rows,), steps),
        "weight": torch.rand(rows),
    }


def as_batch(told: dict[str, Any], *, batch_first: bool = True, **more: Any) -> Batch:  # noqa: ANN401 - parts of a batch
    rows, steps = len(told["lengths"]), int(max(told["lengths"]))
    numbers = torch.arange(rows)
    per_step = frozenset({"inputs", "targets"})
    known: dict[str, Any] = {
        "index": numbers,
        "start": numbers * 0,
        "steps": steps,
        "batch_first": batch_first,
        "per_step": per_step,
    }
    return Batch(**(known | told | more))


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pair": lambda told: (told["inputs"], told["targets"]),
    "list with lengths": lambda told: [told["inputs"], told["targets"], told["lengths"]],
    "tuple of all": lambda told: tuple(told.values()),
    "mapping": dict,
    "mapping of two": lambda told: {name: told[name] for name in ("inputs", "targets")},
    "arrays": lambda told: tuple(part.numpy() for part in told.values()),
    "batch": as_batch,
    "batch of arrays": lambda told: as_batch({name: part.numpy() for name, part in told.items()}),
    "batch that tells nothing": lambda told: as_batch(told, steps=0, per_step=frozenset()),
    "inputs by name": lambda told: ({"x": told["inputs"], "z": [told["inputs"] * 1.0]}, told["targets"]),
}


def nbytes(made: Any) -> int:  # noqa: ANN401 - any batch
    return made.nbytes if isinstance(made, Batch) else sum(leaf.nbytes for leaf in leaves(made))


def as_parts(made: Any) -> dict[str, Any]:  # noqa: ANN401 - any batch
    names = ("inputs", "targets", "lengths", "weight", "static")
    return {name: getattr(made, name) for name in names} if isinstance(made, Batch) else made


@pytest.mark.parametrize("form", FORMS)
@FEW
@given(st.integers(1, 9), st.integers(1, 9), SIZES, SIZES)
def test_any_size_is_made_of_any_form_and_takes_the_bytes_that_are_said(
    form: str, given_rows: int, given_steps: int, rows: int, steps: int
) -> None:
    told = parts(given_rows, given_steps)
    found = read_pattern(FORMS[form](told), batch_first=True)
    assert (found.full_rows, found.full_steps) == (given_rows, given_steps)
    made = found.make(rows, steps)
    assert nbytes(made) == found.bytes(rows, steps)
    for leaf in leaves(as_parts(made)["inputs"]):
        assert leaf.shape == (rows, steps)
        assert set(leaf.unique().tolist()) <= set(told["inputs"].unique().tolist())
    assert as_parts(made)["targets"].shape == (rows, steps, WIDTH)


@FEW
@given(st.integers(2, 9), st.integers(2, 9), SIZES, SIZES)
def test_time_major_batches_grow_along_their_own_axes(given_rows: int, given_steps: int, rows: int, steps: int) -> None:
    told = parts(given_rows, given_steps, batch_first=False)
    for batch in (tuple(told.values()), as_batch(told, batch_first=False)):
        found = read_pattern(batch, batch_first=isinstance(batch, Batch))  # a Batch knows by itself
        made = found.make(rows, steps)
        assert as_parts(made)["inputs"].shape == (steps, rows)
        assert as_parts(made)["targets"].shape == (steps, rows, WIDTH)
        assert as_parts(made)["weight"].shape == (rows,)
        assert nbytes(made) == found.bytes(rows, steps)


@FEW
@given(st.integers(1, 5), st.integers(1, 5), SIZES, SIZES)
def test_what_is_made_repeats_the_sample_along_both_axes(
    given_rows: int, given_steps: int, rows: int, steps: int
) -> None:
    inputs = torch.arange(given_rows * given_steps).view(given_rows, given_steps)
    made = as_parts(read_pattern((inputs, inputs.clone()), batch_first=True).make(rows, steps))["inputs"]
    expected = inputs[torch.arange(rows) % given_rows][:, torch.arange(steps) % given_steps]
    assert torch.equal(made, expected)


def test_a_sample_larger_than_what_is_kept_makes_every_size() -> None:
    inputs = torch.randint(VOCABULARY, (100, 300))
    found = read_pattern((inputs, torch.randn(100)), batch_first=True)
    assert (found.full_rows, found.full_steps) == (100, 300)
    assert sum(leaf.nbytes for leaf in leaves(found.parts)) < inputs.nbytes
    for rows, steps in [(1, 1), (64, 256), (65, 257), (100, 300), (200, 1000)]:
        made = found.make(rows, steps)
        assert as_parts(made)["inputs"].shape == (rows, steps)
        assert as_parts(made)["targets"].shape == (rows,)
        assert nbytes(made) == found.bytes(rows, steps)


@pytest.mark.parametrize("width", [256, 300, 64])
def test_values_a_sequence_as_wide_as_what_is_kept_are_no_steps(width: int) -> None:
    found = read_pattern((torch.randn(80, 1000, 2), torch.randn(80, width)), batch_first=True)
    assert as_parts(found.make(5, 40))["targets"].shape == (5, width)


def test_a_batch_tells_what_has_steps_whatever_the_shapes() -> None:
    told = parts(6, 5) | {"targets": torch.randn(6, 5)}
    batch = as_batch(told, per_step=frozenset({"inputs"}), static=torch.randn(6, 5))
    found = read_pattern(batch, batch_first=True)
    made = found.make(7, 40)
    assert isinstance(made, Batch)
    assert made.targets.shape == made.static.shape == (7, 5)
    assert made.inputs.shape == (7, 40)
    assert (made.steps, made.per_step) == (40, frozenset({"inputs"}))
    assert made.nbytes == found.bytes(7, 40)


def test_inputs_by_name_may_begin_with_one_a_sequence() -> None:
    told = {"shop": torch.arange(6), "x": torch.randn(6, 9, 2)}
    made = as_parts(read_pattern((told, torch.randn(6)), batch_first=True).make(3, 20))
    assert made["inputs"]["shop"].shape == (3,)
    assert made["inputs"]["x"].shape == (3, 20, 2)


def test_most_sequences_that_are_made_are_not_full_and_one_is() -> None:
    found = read_pattern((torch.randn(3, 5, 2), torch.randn(3, 5), torch.tensor([5, 1, 2])), batch_first=True)
    assert as_parts(found.make(4, 9))["lengths"].tolist() == [8, 8, 8, 9]
    assert as_parts(found.make(2, 1))["lengths"].tolist() == [1, 1]
    whole = read_pattern((torch.randn(3, 5, 2), torch.randn(3, 5)), batch_first=True)
    assert not whole.has_lengths
    assert "lengths" not in as_parts(whole.make(4, 9))


def test_data_of_a_fixed_size_keep_their_features() -> None:
    images = read_pattern((torch.randn(5, 3, 8, 8), torch.randint(9, (5,))), batch_first=True)
    made = as_parts(images.make(11, images.full_steps))
    assert (made["inputs"].shape, made["targets"].shape) == ((11, 3, 8, 8), (11,))
    numbers = read_pattern((torch.randint(9, (5,)), torch.randn(5)), batch_first=True)
    assert numbers.full_steps == 1
    assert as_parts(numbers.make(7, 1))["inputs"].shape == (7,)


def test_the_sample_is_neither_kept_nor_changed() -> None:
    inputs = torch.randn(3, 5, 2, requires_grad=True)
    before = inputs.detach().clone()
    made = as_parts(read_pattern((inputs, torch.randn(3, 5)), batch_first=True).make(3, 5))["inputs"]
    made.zero_()
    assert torch.equal(inputs, before)
    assert not made.requires_grad


class Shops(nn.Module):
    """Classes of each step or of each sequence, by its steps and what is static of it."""

    def __init__(self, *, per_step: bool) -> None:
        super().__init__()
        self.rnn = lowtide.nn.GRU(2, 4, batch_first=True)
        self.shop = nn.Linear(1, 4)
        self.pool = nn.Identity() if per_step else lowtide.nn.Pool("mean", batch_first=True)

    def forward(self, x: Tensor, static: Tensor) -> Tensor:
        shops: Tensor = self.shop(static)
        values: Tensor = self.pool(self.rnn(x)[0] + shops[:, None])
        return values


@pytest.mark.parametrize("schema", [SCHEMA, LABELLED])
def test_what_is_made_of_a_stores_batch_with_static_values_runs_as_that_batch_does(
    tmp_path: Path, schema: Schema
) -> None:
    store = stored([4, 9, 1, 6], tmp_path / "store", schema)
    batch = store.loader(batch_size=4, shuffle=False).batch(0)
    step = lowtide.PlannedStep(
        Shops(per_step=schema is SCHEMA),
        lambda out, wanted: F.mse_loss(out.mean(-1), wanted.float(), reduction="none"),
        planned(2),
    )
    found = read_pattern(batch, batch_first=True)
    made = found.make(5, 12)
    assert isinstance(made, Batch)
    assert made.nbytes == found.bytes(5, 12)
    assert torch.isfinite(step(batch))
    assert torch.isfinite(step(made))


REFUSED: dict[str, tuple[Any, str]] = {
    "a tensor": (torch.randn(3, 4), "Tensor"),
    "one part": ((torch.randn(3, 4),), "tuple"),
    "five parts": ((torch.randn(3, 4),) * 5, "tuple"),
    "another mapping": ({"x": 1, "y": 2}, "dict"),
    "a mapping with static": ({"inputs": torch.randn(2, 2), "targets": torch.randn(2), "static": 1}, "dict"),
    "packed inputs": (
        (nn.utils.rnn.pack_sequence([torch.randn(3, 2)]), torch.randn(1)),
        "PackedSequence",
    ),
    "packed alone": (nn.utils.rnn.pack_sequence([torch.randn(3, 2)]), "PackedSequence"),
    "no targets": ((torch.randn(3, 4), None), "no targets"),
    "no inputs": (({}, torch.randn(3)), "no inputs"),
    "a number": ((torch.tensor(1.0), torch.randn(3)), "()"),
    "no sequence": ((torch.randn(0, 4), torch.randn(0)), "0 sequences of 4 steps"),
    "no step": ((torch.randn(3, 0, 2), torch.randn(3)), "3 sequences of 0 steps"),
    "words": ((np.array(["a", "b"]), torch.randn(2)), "ndarray"),
    "lanes": (replace(as_batch(parts(2, 3)), begins=torch.tensor([True, False])), "go on from"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_batch_is_refused_by_name(case: str) -> None:
    batch, named = REFUSED[case]
    with pytest.raises(LowtideError) as refused:
        read_pattern(batch, batch_first=True)
    assert named in str(refused.value)


def test_patterns_differ_in_widths_whatever_their_size() -> None:
    def widths(rows: int, steps: int, width: int) -> list[object]:
        found: Pattern = read_pattern((torch.randn(rows, steps, 2), torch.randn(rows, width)), batch_first=True)
        return found.widths

    assert widths(3, 5, 7) == widths(4, 6, 7)
    assert widths(3, 5, 7) != widths(3, 5, 8)
