"""carry_in and carry_out: nothing outside of a stream, one state for each call inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import lowtide
from lowtide.nn import carry_in, carry_out, valid_lengths
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
    start, first, second, third = ((torch.full((2,), value),) for value in (0.0, 1.0, 2.0, 3.0))
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        assert carry_in(module, start) is start
        carry_out(module, first)
        carry_out(module, second)
        carry_out(other, third)
    with running(BatchContext(carry=Carry(carry.leaving))):
        for asking, left in ((module, first), (other, third), (module, second)):
            assert torch.equal(carry_in(asking, start)[0], left[0])
        with pytest.raises(lowtide.LowtideError, match="Identity"):
            carry_in(module, start)


def test_what_is_taken_up_may_be_changed_in_place() -> None:
    module, left = torch.nn.Identity(), torch.ones(2)
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        carry_out(module, (left,))
    with running(BatchContext(carry=Carry(carry.leaving))):
        carry_in(module, (torch.zeros(2),))[0].zero_()
    assert left.eq(1).all()


def test_lanes_that_begin_anew_take_the_initial_state() -> None:
    module = torch.nn.Identity()
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        carry_out(module, (torch.ones(4, 2),))
    fresh = torch.tensor([True, False])
    for value in (5.0, -torch.inf):
        with running(BatchContext(carry=Carry(carry.leaving, fresh=fresh))):
            (taken,) = carry_in(module, (torch.full((4, 2), value),), batch_axis=1)
        assert taken[:, 0].eq(value).all()
        assert taken[:, 1].eq(1).all()


@pytest.mark.parametrize("state", [torch.ones(2), (), (1.0,), (torch.ones(2), None), None])
@pytest.mark.parametrize("call", [carry_in, carry_out])
def test_a_state_that_is_no_tuple_of_tensors_is_refused_also_outside_of_a_stream(
    call: Callable[..., object], state: object
) -> None:
    with pytest.raises(lowtide.LowtideError, match=f"{call.__name__}\\(Identity"):
        call(torch.nn.Identity(), state)


def test_a_state_of_another_batch_or_count_is_refused() -> None:
    module = torch.nn.Identity()
    carry = Carry({})
    with running(BatchContext(carry=carry)):
        carry_out(module, (torch.ones(4, 3),))
    for initial, said in (((torch.ones(4, 2),), "3 sequences"), ((torch.ones(4, 3),) * 2, "2")):
        with running(BatchContext(carry=Carry(carry.leaving))), pytest.raises(lowtide.LowtideError, match=said):
            carry_in(module, initial, batch_axis=1)


def test_a_forward_inside_a_backward_is_refused() -> None:
    with running(BatchContext(carry=ClosedCarry())), pytest.raises(lowtide.LowtideError, match="backward"):
        carry_in(torch.nn.Identity(), (torch.ones(1),))


def test_valid_lengths_are_those_of_the_data_that_the_model_was_given() -> None:
    assert valid_lengths(5, 2) is None
    lengths = torch.tensor([5, 3])
    with running(BatchContext(lengths=lengths, steps=5)):
        assert valid_lengths(5, 2) is lengths
        assert valid_lengths(4, 2) is None
        assert valid_lengths(5, 3) is None
