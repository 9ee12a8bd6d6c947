"""What only the native path promises: what it keeps, and that chunks and threads do not change a bit of the results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lowtide.ops.native import covers, native_stack
from lowtide.ops.native_call import choose_steps
from lowtide.ops.spec import KEEPS, Cell, Keep, StackSpec
from tests.ops._cases import (
    LAYOUTS,
    Case,
    Tensors,
    assert_same,
    cases,
    dense,
    gradients,
    present,
    run_case,
    tensors_of,
    with_keep,
)

WIDE = StackSpec("lstm", 24, 96, num_layers=2, chunk_steps=8)


def everything(case: Case, tensors: Tensors) -> list[Tensor]:
    """Results and all gradients."""
    result = run_case(native_stack, case, tensors)
    return [*present(result), *gradients(result, tensors.leaves())]


def test_float32_and_float64_on_the_cpu_are_covered_without_projection() -> None:
    covered = {
        dtype: covers(WIDE, torch.empty(2, 3, 24, dtype=dtype))
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    }
    assert [dtype for dtype, is_covered in covered.items() if is_covered] == [torch.float32, torch.float64]
    assert not covers(replace(WIDE, proj_size=5), torch.empty(2, 3, 24))
    assert not covers(WIDE, torch.empty(2, 3, 24, device="meta"))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_keep_modes_and_chunks_agree_to_the_last_bit_going_forward(cell: Cell, *, bidirectional: bool) -> None:
    case, tensors = dense(replace(WIDE, cell=cell, bidirectional=bidirectional), steps=40, sequences=5)
    expected = present(run_case(native_stack, with_keep(case, "gates"), tensors))
    for keep in KEEPS:
        for chunk_steps, state_steps in [(1, 0), (8, 24), (40, 40), (64, 64)]:
            spec = replace(case.spec, keep=keep, chunk_steps=chunk_steps, state_steps=state_steps)
            found = run_case(native_stack, replace(case, spec=spec), tensors)
            assert_same(present(found), expected, tolerance=0)


@settings(max_examples=60, deadline=None)
@given(cases(layouts=LAYOUTS), st.integers(1, 4), st.integers(1, 3))
def test_any_chunk_and_any_distance_of_kept_states_give_the_same_gradients(case: Case, chunk: int, times: int) -> None:
    case = replace(case, spec=replace(case.spec, proj_size=0))
    tensors = tensors_of(case)
    spec = replace(case.spec, chunk_steps=chunk, state_steps=times * chunk)
    assert_same(everything(replace(case, spec=spec), tensors), everything(case, tensors))


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("sequences", [1, 5])
def test_results_are_bitwise_the_same_at_any_thread_count(cell: Cell, keep: Keep, sequences: int) -> None:
    spec = replace(WIDE, cell=cell, keep=keep, hidden_size=160)
    case, _ = dense(spec, steps=50, sequences=sequences)
    tensors = tensors_of(case, torch.float32)
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append(everything(case, tensors))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert_same(run, runs[0], tolerance=0)


def kept_bytes(spec: StackSpec, steps: int, sequences: int) -> int:
    """What the graph holds beside the tensors that the stack was given and the outputs that it returned."""
    case, tensors = dense(spec, steps, sequences)
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors.leaves()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs, *_ = run_case(native_stack, case, tensors)
    given.add(outputs.untyped_storage().data_ptr())
    return sum(size for place, size in kept.items() if place not in given)


def test_what_is_kept_shrinks_from_gates_to_outputs_to_boundaries() -> None:
    steps, sequences, width, layers = 640, 4, 64, 3
    spec = StackSpec("lstm", 8, width, num_layers=layers, chunk_steps=32)
    unit = sequences * width * 8
    inner, states = (layers - 1) * steps * unit, layers * steps // 32 * unit
    assert kept_bytes(replace(spec, keep="gates"), steps, sequences) == inner + 5 * layers * steps * unit
    assert kept_bytes(replace(spec, keep="outputs"), steps, sequences) == inner + states
    assert kept_bytes(replace(spec, keep="outputs", state_steps=128), steps, sequences) == inner + states // 4
    # rows of h are spaced so that equal powers of two do not collide in the cache
    assert 2 * states <= kept_bytes(replace(spec, keep="boundaries"), steps, sequences) <= 3 * states
    assert kept_bytes(replace(spec, cell="gru"), steps, sequences) == inner


def test_chunks_are_chosen_by_rows_and_kept_states_lie_at_their_starts() -> None:
    assert choose_steps(WIDE, 100, 4) == (8, 8)
    chosen = choose_steps(replace(WIDE, chunk_steps=0), 10_000, 4)
    assert chosen.chunk * 4 >= 512
    assert chosen.state == chosen.chunk
    assert choose_steps(replace(WIDE, state_steps=20), 100, 4) == (8, 24)
    assert choose_steps(replace(WIDE, keep="boundaries", state_steps=20), 100, 4) == (20, 20)
    assert choose_steps(replace(WIDE, chunk_steps=0, state_steps=4), 100, 4) == (4, 4)
