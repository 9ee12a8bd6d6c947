"""carry_in and carry_out: nothing outside of a stream, one state for each call inside."""

from __future__ import annotations

import pytest
import torch

import lowtide
from lowtide.nn import carry_in, carry_out
from lowtide.nn._carry import Carry, ClosedCarry
from lowtide.nn._context import BatchContext, current_context, running


def test_outside_of_a_stream_a_sequence_begins_at_its_first_step() -> None:
    module, start = torch.nn.Identity(), (torch.ones(2),)
    assert carry_in(module, start) is start
    carry_out(module, (torch.zeros(2),))
    assert carry_in(module, start) is start
    assert not current_context().streams


def test_each_call_of_a_module_has_a_state_of_its_own() -> None:
    module, other = torch.nn.Identity(), torch.nn.Identity()
    first, second, third = (torch.full((2,), value) for value in (1.0, 2.0, 3.0))
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        assert carry_in(module) == ()
        carry_out(module, (first,))
        carry_out(module, (second,))
        carry_out(other, (third,))
    with running(BatchContext(carry=Carry(carry.leaving))):
        assert carry_in(module)[0] is first
        assert carry_in(other)[0] is third
        assert carry_in(module)[0] is second
        with pytest.raises(lowtide.LowtideError, match="Identity"):
            carry_in(module)


def test_lanes_that_begin_anew_take_the_initial_state() -> None:
    module = torch.nn.Identity()
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        carry_out(module, (torch.ones(4, 2),))
    fresh = torch.tensor([True, False])
    for initial, wanted in (((torch.full((4, 2), 5.0),), 5.0), ((), 0.0)):
        with running(BatchContext(carry=Carry(carry.leaving, fresh=fresh))):
            (taken,) = carry_in(module, initial, batch_axis=1)
        assert taken[:, 0].eq(wanted).all()
        assert taken[:, 1].eq(1).all()


def test_a_forward_inside_a_backward_is_refused() -> None:
    with running(BatchContext(carry=ClosedCarry())), pytest.raises(lowtide.LowtideError, match="backward"):
        carry_in(torch.nn.Identity())
