"""A call that contradicts itself raises, before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lowtide import kernels
from tests.kernels.cases import Case
from tests.kernels.driver import UNTOUCHED, Session, Settings

RAGGED = Case("lstm", layers=2, directions=2, lengths=(5, 3), settings=Settings(layout="packed", chunk_steps=2))

Change = Callable[[kernels.Call], None]


def sets(name: str, value: object) -> Change:
    """Change one field of the call."""
    return lambda call: setattr(call, name, value)


def sets_layer(name: str) -> Change:
    """Take one address from the last layer."""
    return lambda call: setattr(call.layer(3), name, 0)


CONTRADICTIONS: dict[str, tuple[Change, str]] = {
    "no steps": (sets("steps", 0), "at least 1"),
    "no sequences": (sets("batch", 0), "at least 1"),
    "no units": (sets("hidden", 0), "at least 1"),
    "negative inputs": (sets("inputs", -1), "at least 0"),
    "no threads": (sets("threads", 0), "at least 1"),
    "no steps in a chunk": (sets("chunk_steps", 0), "multiple of chunk_steps"),
    "negative steps in a chunk": (sets("chunk_steps", -2), "multiple of chunk_steps"),
    "no steps between states": (sets("state_steps", 0), "multiple of chunk_steps"),
    "negative steps between states": (sets("state_steps", -2), "multiple of chunk_steps"),
    "states within a chunk": (sets("state_steps", 3), "multiple of chunk_steps"),
    "no way back through ragged rows": (sets("start_at_step_reverse", 0), "start_at_step_reverse"),
    "no weights of inputs": (sets_layer("w_ih"), "weights"),
    "no recurrent weights": (sets_layer("w_hh"), "weights"),
}


def assert_untouched(session: Session) -> None:
    """Check that all outputs of a forward pass are as they were made."""
    assert all((array == UNTOUCHED).all() for array in (session.y.memory, *session.last.values()))
    assert all(np.isnan(array).all() for array in (session.states, session.gates, session.inner))


@pytest.mark.parametrize("run", [kernels.forward, kernels.backward])
@pytest.mark.parametrize(("change", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_raises_and_touches_nothing(
    change: Change, message: str, run: Callable[[kernels.Call], None]
) -> None:
    session = Session(RAGGED.problem(), RAGGED.settings)
    call = session.forward_call()
    change(call)
    with pytest.raises(ValueError, match=message):
        run(call)
    assert_untouched(session)


def test_without_inner_outputs_states_must_lie_at_every_chunk() -> None:
    case = Case("gru", layers=2, settings=Settings(keep="boundaries", chunk_steps=2))
    session = Session(case.problem(), case.settings)
    call = session.forward_call()
    call.state_steps = 4
    with pytest.raises(ValueError, match="boundaries"):
        kernels.forward(call)
    assert_untouched(session)


def test_the_same_call_without_the_contradiction_runs() -> None:
    session = Session(RAGGED.problem(), RAGGED.settings)
    kernels.forward(session.forward_call())
    assert (session.y.memory != UNTOUCHED).all()
    assert not np.isnan(session.states).any()


def test_a_layer_that_is_not_there_is_an_error() -> None:
    call = kernels.Call(2, 1)
    call.layer(1)
    with pytest.raises(IndexError):
        call.layer(2)
