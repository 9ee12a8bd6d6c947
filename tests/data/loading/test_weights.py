"""Weights are those of the rows, and classes come out even."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.loading import passes
from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.loader import Loader
from lowtide.data.loading.policy import SequenceItems, Spans
from lowtide.data.loading.weights import ClassBalance, PartWeights, SequenceWeights, product
from lowtide.data.loading.windows import WindowItems, Windows
from lowtide.errors import LowtideError

SCHEMA = Schema(
    (
        Field("x", "inputs", "step", "float32", 0),
        Field("y", "targets", "step", "int8", 1),
        Field("label", "targets", "sequence", "int16", 0),
        Field("w", "static", "sequence", "float32", 0),
        Field("wide", "static", "sequence", "int8", 2),
    ),
    "int64",
)
LENGTHS = [4, 1, 6, 3]
LABELS = [3, 3, 8, -1]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("weights") / "store"
    with StoreWriter(path, SCHEMA) as writer:
        for number, (steps, label) in enumerate(zip(LENGTHS, LABELS, strict=True)):
            arrays: dict[str, Any] = {
                "x": np.zeros(steps, np.float32),
                "y": (np.arange(steps) % 4 - 1).astype(np.int8)[:, None],
                "label": np.int16(label),
                "w": np.float32(number),
                "wide": np.zeros(2, np.int8),
            }
            writer.add(number, arrays)
        writer.commit()
    return Store(path)


def spans(*rows: tuple[int, int, int]) -> Spans:
    return Spans(*(np.asarray(part, np.int64) for part in zip(*rows, strict=True)))


class Fixed:
    """Weights whatever the rows."""

    def __init__(self, values: Any, *, per_step: bool) -> None:  # noqa: ANN401 - an array
        """Give these."""
        self.values = values
        self.per_step = per_step

    def __call__(self, _: Spans) -> Any:  # noqa: ANN401 - an array
        """Give them."""
        return self.values


WHOLE = spans(*((number, 0, length) for number, length in enumerate(LENGTHS)))


def test_a_sequence_weighs_what_it_is_given(store: Store) -> None:
    given_weights = SequenceWeights(store, [0.5, 1, 2, 0])
    np.testing.assert_array_equal(given_weights(spans((2, 0, 1), (0, 1, 2), (2, 3, 4))), [2, 0.5, 2])
    np.testing.assert_array_equal(SequenceWeights(store, "w")(WHOLE), [0, 1, 2, 3])


def test_a_part_weighs_one_over_the_number_of_parts() -> None:
    assert PartWeights(lambda rows: rows + 1)(WHOLE).tolist() == [1, 1 / 2, 1 / 3, 1 / 4]


def test_every_class_of_sequences_weighs_the_same_in_all(store: Store) -> None:
    balance = ClassBalance(store, "label", SequenceItems(store.lengths), last=False)
    assert (balance.classes.tolist(), balance.counts.tolist()) == ([3, 8], [2, 1])
    np.testing.assert_allclose(balance(WHOLE), [0.75, 0.75, 1.5, 0])


@pytest.mark.parametrize("block", [2, 1 << 20])
def test_every_class_of_steps_weighs_the_same_in_all(store: Store, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.data.loading.weights.steps_of", lambda items: passes.steps_of(items, block))
    balance = ClassBalance(store, "y", SequenceItems(store.lengths), last=False)
    labels = np.concatenate([np.arange(steps) % 4 - 1 for steps in LENGTHS])
    weights = balance(WHOLE)
    assert (weights[labels < 0] == 0).all()
    np.testing.assert_allclose([weights[labels == one].sum() for one in range(3)], weights.sum() / 3)
    assert weights[labels >= 0].mean() == pytest.approx(1)


def test_a_window_has_the_class_of_its_last_step(store: Store) -> None:
    balance = ClassBalance(store, "y", WindowItems(store.lengths, 1, 1), last=True)
    rows = spans((0, 0, 2), (0, 0, 3), (2, 1, 5))
    np.testing.assert_array_equal(balance(rows) == 0, [False, False, True])
    assert balance(rows)[0] != balance(rows)[1]


def test_sequences_that_are_left_out_have_no_part_in_the_balance(store: Store) -> None:
    balance = ClassBalance(store, "label", SequenceItems(store.lengths, most=3), last=False)
    assert (balance.classes.tolist(), balance.counts.tolist()) == ([3], [1])
    parts = WindowItems(store.lengths, 2, 2)
    balance = ClassBalance(store, "label", parts, last=False)
    assert (balance.classes.tolist(), balance.counts.tolist()) == ([3, 8], [3, 3])
    balance = ClassBalance(store, "label", parts, last=False, together=True)
    assert (balance.classes.tolist(), balance.counts.tolist()) == ([3, 8], [2, 1])


@pytest.mark.parametrize(
    ("balance", "options"),
    [
        ("y", {"max_length": 3}),
        ("y", {"max_length": 4, "cut": "tail"}),
        ("y", {"max_length": 4, "over_length": "drop"}),
        ("y", {"windows": Windows(3, 1)}),
        ("y", {"windows": Windows(2, 3)}),
        ("y", {"windows": Windows(4, 2, label="last")}),
        ("y", {"lanes": Lanes(2, 3)}),
        ("label", {"max_length": 3}),
        ("label", {"max_length": 2, "over_length": "split"}),
        ("label", {"windows": Windows(3, 1)}),
        ("label", {"windows": Windows(4, 2, label="last")}),
    ],
)
def test_classes_weigh_the_same_in_all_that_is_loaded(store: Store, balance: str, options: Any) -> None:  # noqa: ANN401 - drawn
    found: dict[int, float] = {}
    for batch in Loader.of(store, balance=balance, framework="numpy", **options):
        labels = batch.targets[balance].reshape(batch.weight.shape)
        for one, weight in zip(labels[batch.weight > 0].tolist(), batch.weight[batch.weight > 0].tolist(), strict=True):
            found[one] = found.get(one, 0) + weight
    assert len(found) > 1
    np.testing.assert_allclose(list(found.values()), sum(found.values()) / len(found), rtol=1e-5)


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=3, unique=True))
def test_weights_are_multiplied_step_by_step_where_one_is_per_step(kinds: list[int]) -> None:
    made: list[Any] = []
    for kind in kinds:
        per_step = kind == 2
        size = int(WHOLE.lengths.sum()) if per_step else 4
        values = np.arange(1.0, size + 1) + kind
        made.append(Fixed(values, per_step=per_step))
    total, per_step = product(made, WHOLE)
    assert per_step == (2 in kinds)
    expected = np.ones(sum(LENGTHS))
    for weighting in made:
        values = weighting(WHOLE)
        expected *= values if weighting.per_step else np.repeat(values, LENGTHS)
    np.testing.assert_array_equal(total if per_step else np.repeat(total, LENGTHS), expected)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda store: SequenceWeights(store, [1, 2]), r"shape \(2,\) for 4 sequences"),
        (lambda store: SequenceWeights(store, [1, 2, -1, 0]), "negative"),
        (lambda store: SequenceWeights(store, [1, 2, np.nan, 0]), "not finite"),
        (lambda store: SequenceWeights(store, "x"), "not one number per sequence"),
        (lambda store: SequenceWeights(store, "wide"), "not one number per sequence"),
        (lambda store: SequenceWeights(store, "nothing"), "nothing"),
        (lambda store: ClassBalance(store, "x", SequenceItems(store.lengths), last=False), "float32"),
        (lambda store: ClassBalance(store, "wide", SequenceItems(store.lengths), last=False), "wide"),
        (
            lambda store: ClassBalance(store[3:], "label", SequenceItems(store[3:].lengths), last=False),
            "without a label",
        ),
    ],
)
def test_what_is_no_weight_and_no_label_is_refused(store: Store, make: Any, said: str) -> None:  # noqa: ANN401 - a lambda
    with pytest.raises(LowtideError, match=said):
        make(store)
