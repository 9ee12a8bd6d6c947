"""What does not fit says the least that would, what that consists of, and the smallest change that helps."""

from __future__ import annotations

import pickle

from lowtide.errors import LowtideError
from lowtide.memory.sizes import in_words
from lowtide.planning import Component, DoesNotFitError, Offer
from lowtide.planning.floor import does_not_fit
from tests.planning.cases import MIB, budget

PARTS = (Component("held before training", 100 * MIB), Component("gradients", 400 * MIB))
OFFERS = (
    Offer("half the units", 300 * MIB, "a smaller model"),
    Offer("a leaner optimizer", 220 * MIB, "other steps"),
    Offer("shorter sequences", 50 * MIB, "their ends"),
)


def error(offers: tuple[Offer, ...] = OFFERS) -> DoesNotFitError:
    return does_not_fit(budget(200 * MIB), 500 * MIB, PARTS, offers)


def test_floor_and_components_are_there_as_values_and_in_words() -> None:
    found = error()
    assert isinstance(found, LowtideError)
    assert (found.floor, found.components) == (500 * MIB, PARTS)
    for size in (500 * MIB, 300 * MIB, *(one.bytes for one in PARTS)):
        assert in_words(size) in str(found)
    for one in PARTS:
        assert one.name in str(found)


def test_the_smallest_change_that_would_do_is_told() -> None:
    assert "a leaner optimizer" in error().fix  # 200 MiB are missing
    assert "half the units" not in error().fix


def test_no_change_is_told_where_none_would_do() -> None:
    assert in_words(500 * MIB) in error(OFFERS[2:]).fix
    assert "shorter" not in error(OFFERS[2:]).fix


def test_it_survives_pickling() -> None:
    back = pickle.loads(pickle.dumps(error()))  # noqa: S301 - made here
    assert isinstance(back, DoesNotFitError)
    assert (back.floor, back.components, str(back)) == (500 * MIB, PARTS, str(error()))
