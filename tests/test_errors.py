"""Errors say what, why and what to do, and come back whole from another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from lowtide.errors import LowtideError, MissingExtraError, UnsupportedError

KINDS = [LowtideError, MissingExtraError, UnsupportedError]


def an_error(kind: type[LowtideError]) -> LowtideError:
    return kind(what="hidden_size is 0", why="a layer needs units", fix="pass hidden_size >= 1")


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_holds_all_three_parts_in_order(kind: type[LowtideError]) -> None:
    text = str(an_error(kind))
    places = [text.index(part) for part in ("hidden_size is 0", "a layer needs units", "pass hidden_size >= 1")]
    assert places == sorted(places)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])  # noqa: S301 - made here
def test_an_error_survives_pickling_and_copying(kind: type[LowtideError], again) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - three callables of unlike types
    error = an_error(kind)
    error.add_note("in the second layer")
    restored = again(error)
    assert type(restored) is kind
    assert (restored.what, restored.why, restored.fix) == (error.what, error.why, error.fix)
    assert str(restored) == str(error)
    assert restored.__notes__ == ["in the second layer"]


def test_the_parts_cannot_be_confused_by_position() -> None:
    with pytest.raises(TypeError):
        LowtideError("what", "why", "fix")  # type: ignore[call-arg]


def test_a_missing_extra_is_an_import_error_too() -> None:
    with pytest.raises(ImportError):
        raise an_error(MissingExtraError)
