"""An object of one's own is fitted, stored as numbers, and found again only where its program brought its class."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, StandardScaler

import lowtide
from lowtide.data import Store
from lowtide.data.transforming.own import Own
from lowtide.data.transforming.own_numbers import find_class
from lowtide.data.transforms import apply_all, fit_transforms, invert_all, read_transforms, results_of
from tests.data.transforming_cases import assert_close, save_x

VALUES = np.random.default_rng(0).normal(2, 5, (300, 3)).astype(np.float32)
Numbers = NDArray[np.float64]


class Largest:
    """Divides by the largest number seen; adds the sum of a row as a column where asked."""

    def __init__(self, *, adding: bool = False) -> None:
        """Know nothing yet."""
        self.adding = adding
        self.largest_: Numbers | None = None
        self.notes: dict[str, Any] = {"blocks": [], "name": "largest", "limits": (1, 2.5)}

    def partial_fit(self, block: Numbers) -> None:
        """See more."""
        largest = np.abs(block).max(0)
        self.largest_ = largest if self.largest_ is None else np.maximum(self.largest_, largest)
        self.notes["blocks"].append(len(block))

    def transform(self, block: Numbers) -> Numbers:
        """Divide."""
        assert self.largest_ is not None
        done: Numbers = block / self.largest_
        return np.concatenate([done, done.sum(1, keepdims=True)], axis=1) if self.adding else done

    def inverse_transform(self, block: Numbers) -> Numbers:
        """Multiply."""
        assert self.largest_ is not None
        back: Numbers = block[:, : len(self.largest_)] * self.largest_
        return back


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return save_x(tmp_path / "store", [VALUES[:100], VALUES[100:]])


def stored(transforms: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - transforms
    """What a manifest would hold."""
    told: list[dict[str, Any]] = json.loads(json.dumps([made.to_json() for made in transforms], allow_nan=False))
    return told


def test_an_object_is_fitted_stored_and_inverted(store: Store) -> None:
    given = Largest()
    made = fit_transforms(store, {"x": {"kind": given, "columns": ["x2", "x0"]}})
    assert given.largest_ is None  # the user's own stays as it is
    made = read_transforms(stored(made), store.schema)
    done = apply_all(made, VALUES, None)
    assert done.dtype == np.float32
    assert_close(done, VALUES / np.array([np.abs(VALUES[:, 0]).max(), 1, np.abs(VALUES[:, 2]).max()]))
    assert_close(invert_all(made, done), VALUES)
    own = made[0]
    assert isinstance(own, Own)
    assert own.instance.notes == {"blocks": [300], "name": "largest", "limits": (1, 2.5)}


def test_an_object_may_make_other_columns(store: Store) -> None:
    made = fit_transforms(store, {"x": {"kind": Largest(adding=True), "columns": ["x2", "x0"]}})
    assert results_of(store.schema, made, "x")[0] == ("x1", "own0", "own1", "own2")
    done = apply_all(made, VALUES, None)
    np.testing.assert_array_equal(done[:, 0], VALUES[:, 1])
    assert_close(done[:, 3], done[:, 1] + done[:, 2])
    assert_close(invert_all(made, done), VALUES)
    assert apply_all(made, VALUES[:0], None).shape == (0, 4)


@pytest.mark.parametrize("given", [StandardScaler(), MinMaxScaler((-1, 2)), MaxAbsScaler()], ids=str)
def test_objects_of_scikit_learn_are_known(store: Store, given: Any) -> None:  # noqa: ANN401 - untyped
    made = read_transforms(stored(fit_transforms(store, {"x": given})), store.schema)
    assert_close(apply_all(made, VALUES, None), given.fit_transform(VALUES.astype(np.float64)))


def test_a_class_that_the_program_did_not_bring_is_not_imported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    told = stored(fit_transforms(store, {"x": Largest()}))
    monkeypatch.delitem(sys.modules, Largest.__module__)
    made = read_transforms(told, store.schema)  # a store can be opened without it
    with pytest.raises(lowtide.LowtideError, match=r"'Largest' of the module .* is not there"):
        apply_all(made, VALUES, None)


@pytest.mark.parametrize(
    "name", ["subprocess:Popen", "builtins:eval", "os:system", "sklearn.preprocessing:nothing", "sklearn.no:X", "", ":"]
)
def test_only_classes_that_fit_and_transform_are_used(name: str) -> None:
    assert find_class(name) is None


def test_what_is_no_number_is_refused(store: Store) -> None:
    for attribute, said in (
        (np.random.default_rng(0), "helper is a Generator"),
        ([1, {"deep": {1, 2}}], r"helper\[1\]\['deep'\] is a set"),
        (np.array([np.nan]), "not finite"),
        (np.array(["a"]), "array of <U1"),
        ({1: 2}, "is a dict"),
    ):
        given = Largest()
        given.helper = attribute  # type: ignore[attr-defined]  # what a user may do
        with pytest.raises(lowtide.LowtideError, match=said):
            fit_transforms(store, {"x": given})


def test_what_cannot_be_copied_or_found_again_is_refused(store: Store) -> None:
    class Local(Largest):
        pass

    with pytest.raises(lowtide.LowtideError, match="cannot be found again"):
        fit_transforms(store, {"x": Local()})
    given = Largest()
    given.helper = iter(sys.modules.values())  # type: ignore[attr-defined]
    with pytest.raises(lowtide.LowtideError, match="cannot be copied"):
        fit_transforms(store, {"x": given})


def test_a_missing_way_back_and_a_wrong_shape_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fit_transforms(store, {"x": Largest()})
    monkeypatch.delattr(Largest, "inverse_transform")
    with pytest.raises(lowtide.LowtideError, match="has no inverse_transform"):
        invert_all(made, VALUES)
    monkeypatch.setattr(Largest, "transform", lambda _self, block: block[:, :1])
    with pytest.raises(lowtide.LowtideError, match=r"made shape \(300, 1\) of shape \(300, 3\)"):
        apply_all(made, VALUES, None)


def test_an_object_that_cannot_be_fitted_bit_by_bit_is_refused(store: Store) -> None:
    with pytest.raises(lowtide.LowtideError, match="partial_fit"):
        fit_transforms(store, {"x": PolynomialFeatures()})


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda _self, block: block[:-1], r"\(1, 3\)"),
        (lambda _self, block: block.sum(1), r"\(2,\)"),
        (lambda _self, block: block[:, :0], r"\(2, 0\)"),
    ],
)
def test_a_transform_that_makes_no_row_of_each_row_is_refused_when_it_is_fitted(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Any,  # noqa: ANN401 - a function
    shape: str,
) -> None:
    monkeypatch.setattr(Largest, "transform", wrong)
    with pytest.raises(lowtide.LowtideError, match=rf"makes shape {shape} of shape \(2, 3\)"):
        fit_transforms(store, {"x": Largest()})
