"""Padded batches: each sequence ends at its own length, and what lies beyond has no say in anything."""
# ruff: noqa: ANN401 - layers, states and results have as many forms as torch gives them

from __future__ import annotations

from typing import Any

import pytest
import torch

import lowtide.nn
from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, Arguments, Case, call, lean_layer, pack

LENGTHS = (4, 9, 1, 9, 7)


def padded(cell: str, keep: Keep = "outputs", **more: Any) -> Case:
    return Case(cell=cell, layout="lengths", lengths=LENGTHS, keep=keep, **more)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_every_way_to_say_lengths_gives_the_same(cell: str, keep: Keep, *, batch_first: bool) -> None:
    case = padded(cell, keep, batch_first=batch_first)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    expected = layer(arguments.inputs, arguments.hx, lengths=list(LENGTHS))
    for lengths in (LENGTHS, torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32)):
        assert_same(layer(arguments.inputs, arguments.hx, lengths=lengths), expected)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_has_no_influence_and_gets_no_gradient(cell: str, keep: Keep, *, bidirectional: bool) -> None:
    case = padded(cell, keep, bidirectional=bidirectional, chunk_steps=2)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    beyond = torch.arange(case.steps)[:, None] >= torch.tensor(LENGTHS)
    poisoned = arguments.inputs.detach().clone()
    poisoned[beyond] = torch.nan
    poisoned.requires_grad_()

    outputs, final = layer(poisoned, arguments.hx, lengths=LENGTHS)
    clean, clean_final = layer(arguments.inputs, arguments.hx, lengths=LENGTHS)
    assert torch.equal(outputs[beyond], torch.zeros_like(outputs[beyond]))
    assert_same((outputs, final), (clean, clean_final))

    (outputs.square().sum() + sum(state.sum() for state in flat(final))).backward()
    assert poisoned.grad is not None
    assert torch.equal(poisoned.grad[beyond], torch.zeros_like(poisoned.grad[beyond]))
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in layer.parameters())


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_final_states_are_those_of_a_packed_batch_in_the_same_order(cell: str, keep: Keep) -> None:
    case = padded(cell, keep, bidirectional=True)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    _, final = layer(arguments.inputs, arguments.hx, lengths=LENGTHS)
    _, packed_final = layer(pack(case, arguments.inputs), arguments.hx)
    assert_same(final, packed_final)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_sequence_of_no_steps_keeps_its_initial_state(cell: str, keep: Keep) -> None:
    case = padded(cell, keep)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    lengths = (0, 9, 0, 3, 5)
    outputs, final = layer(arguments.inputs, arguments.hx, lengths=lengths)
    assert torch.equal(outputs[:, 0], torch.zeros_like(outputs[:, 0]))
    for state, initial in zip(flat(final), arguments.states, strict=True):
        assert torch.equal(state[:, [0, 2]], initial[:, [0, 2]])
    outputs.sum().backward()
    alone = Arguments.draw(case)
    layer.zero_grad()
    some, _ = layer(
        alone.inputs[:, [1, 3, 4]],
        tuple(state[:, [1, 3, 4]] for state in alone.states) if cell == "LSTM" else alone.states[0][:, [1, 3, 4]],
        lengths=[9, 3, 5],
    )
    some.sum().backward()
    torch.testing.assert_close(outputs[:, [1, 3, 4]], some)
    torch.testing.assert_close(arguments.inputs.grad, alone.inputs.grad)


@pytest.mark.parametrize("cell", CELLS)
def test_one_sequence_takes_one_length(cell: str) -> None:
    case = Case(cell=cell, layout="one sequence")
    layer, arguments = lean_layer(case), Arguments.draw(case)
    outputs, final = layer(arguments.inputs, arguments.hx, lengths=[4])
    short, short_final = layer(arguments.inputs[:4], arguments.hx)
    assert_same((outputs[:4], final), (short, short_final))
    assert not outputs[4:].any()


@pytest.mark.parametrize("cell", CELLS)
def test_full_lengths_are_as_none(cell: str) -> None:
    case = Case(cell=cell)
    layer, arguments = lean_layer(case), Arguments.draw(case)
    full = layer(arguments.inputs, arguments.hx, lengths=[case.steps] * case.sequences)
    assert_same(full, layer(arguments.inputs, arguments.hx))


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([9, 4], "3 sequences"),
        ([9, 4, 7, 2], "3 sequences"),
        ([], "3 sequences"),
        ([[9], [4], [7]], "3 sequences"),
        (9, "3 sequences"),
        ([9, -1, 7], r"lengths\[1\] is -1"),
        ([9, 4, 10], r"lengths\[2\] is 10"),
        ([9.0, 4.0, 7.0], "float32"),
        (torch.ones(3, dtype=torch.bool), "bool"),
        (torch.tensor([9, 4, 7], dtype=torch.complex64), "complex64"),
    ],
)
@pytest.mark.parametrize("cell", CELLS)
def test_wrong_lengths_are_refused_with_the_value(cell: str, lengths: Any, said: str) -> None:
    case = Case(cell=cell)
    with pytest.raises(LowtideError, match=said):
        lean_layer(case)(Arguments.draw(case).inputs, lengths=lengths)


@pytest.mark.parametrize("cell", CELLS)
def test_lengths_beside_a_packed_sequence_are_refused(cell: str) -> None:
    case = padded(cell)
    with pytest.raises(LowtideError, match="PackedSequence"):
        lean_layer(case)(pack(case, Arguments.draw(case).inputs), lengths=LENGTHS)


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_lengths_are_refused_where_only_torch_can_compute() -> None:
    layer = lowtide.nn.GRU(3, 4).to(torch.complex64)
    with pytest.raises(LowtideError, match="complex64"):
        layer(torch.ones(5, 2, 3, dtype=torch.complex64), lengths=[5, 2])


def flat(final: Any) -> tuple[torch.Tensor, ...]:
    return final if isinstance(final, tuple) else (final,)


def assert_same(results: Any, expected: Any) -> None:
    torch.testing.assert_close(results, expected, rtol=1e-11, atol=1e-12)


def test_an_empty_batch_takes_no_lengths() -> None:
    outputs, h = lowtide.nn.GRU(3, 4)(torch.ones(5, 0, 3), lengths=[])
    assert outputs.shape == (5, 0, 4)
    assert h.shape == (1, 0, 4)


def test_results_of_a_case_with_lengths_are_zero_beyond_them_in_every_layout() -> None:
    for batch_first in (False, True):
        case = padded("LSTM", batch_first=batch_first)
        outputs = call(lean_layer(case), case, Arguments.draw(case))["outputs"]
        by_sequence = outputs if batch_first else outputs.transpose(0, 1)
        for sequence, length in zip(by_sequence, LENGTHS, strict=True):
            assert sequence[:length].all()
            assert not sequence[length:].any()
