"""Columns that are made out of several, beside those that stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from lowtide.data.transforming.own import Own
from lowtide.data.transforming.principal import Principal

COLUMNS = ("a", "b", "c", "d")
VALUES = np.random.default_rng(0).normal(size=(5, 4))


def principal(chosen: tuple[str, ...], components: int) -> Principal:
    """Of the chosen columns, those that come last first."""
    turned = np.eye(len(chosen))[::-1][:components]
    return Principal("x", COLUMNS, chosen, scalar=False, mean=np.zeros(len(chosen)), components=turned)


@pytest.mark.parametrize(
    ("chosen", "components", "results"),
    [
        (("b", "d"), 1, ("a", "c", "pca0")),
        (("b", "d"), 2, ("a", "c", "pca0", "pca1")),
        (("d", "a"), 2, ("b", "c", "pca0", "pca1")),
        (COLUMNS, 3, ("pca0", "pca1", "pca2")),
    ],
)
def test_the_others_come_first_and_the_made_ones_last(
    chosen: tuple[str, ...], components: int, results: tuple[str, ...]
) -> None:
    transform = principal(chosen, components)
    made = transform.apply(VALUES)
    assert transform.results == results
    others = [COLUMNS.index(name) for name in results if name in COLUMNS]
    assert np.array_equal(made[:, : len(others)], VALUES[:, others])
    wanted = [COLUMNS.index(name) for name in chosen[::-1][:components]]
    assert np.allclose(made[:, len(others) :], VALUES[:, wanted])


@pytest.mark.parametrize("chosen", [("b", "d"), ("d", "a"), COLUMNS])
def test_as_many_components_as_columns_bring_all_columns_back_in_place(chosen: tuple[str, ...]) -> None:
    transform = principal(chosen, len(chosen))
    made = transform.apply(VALUES)
    assert np.allclose(transform.inverted(made, transform.results, None), VALUES)
    batch = np.stack([made, made])
    assert np.allclose(transform.inverted(batch, transform.results, None), np.stack([VALUES, VALUES]))


def test_one_s_own_that_makes_as_many_columns_leaves_them_their_names_and_places() -> None:
    scaler = "sklearn.preprocessing:StandardScaler"
    assert Own("x", COLUMNS, ("b", "d"), scalar=False, class_name=scaler, attributes={}, width=2).results == COLUMNS
    assert Own("x", COLUMNS, ("b", "d"), scalar=False, class_name=scaler, attributes={}, width=1).results == (
        "a",
        "c",
        "own0",
    )
