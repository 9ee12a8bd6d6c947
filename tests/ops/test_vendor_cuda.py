"""The vendor path on a GPU: cuDNN in time chunks. Skipped where there is none."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lowtide.ops.dropout import apply_mask, draw_masks
from lowtide.ops.reference import reference_stack
from lowtide.ops.spec import KEEPS, Cell, Keep, StackSpec
from lowtide.ops.vendor import vendor_stack
from tests.ops._cases import Case, Tensors, gradients, present, run_case, tensors_of, with_keep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def moved(tensors: Tensors, dtype: torch.dtype = torch.float64) -> Tensors:
    """The same tensors on the GPU, as leaves."""

    def leaf(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().to(CUDA, dtype).requires_grad_()

    inputs = tensors.inputs.detach().to(CUDA, dtype).requires_grad_()
    weights = [weight.detach().to(CUDA, dtype).requires_grad_() for weight in tensors.weights]
    return Tensors(inputs, tensors.batch_sizes, leaf(tensors.h0), leaf(tensors.c0), weights)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("layout", ["dense", "batch_first", "packed", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("cell", "proj_size"), [("lstm", 0), ("lstm", 3), ("gru", 0), ("rnn_tanh", 0), ("rnn_relu", 0)]
)
def test_every_mode_equals_the_reference(
    keep: Keep, layout: str, cell: Cell, *, proj_size: int, bidirectional: bool
) -> None:
    if proj_size and cell != "lstm":
        pytest.skip("only an LSTM projects")
    spec = StackSpec(cell, 4, 6, num_layers=2, bidirectional=bidirectional, proj_size=proj_size, chunk_steps=3)
    lengths = {"packed": (9, 9, 4, 1), "padded": (4, 9, 1, 9)}.get(layout, (9,) * 4)
    case = Case(replace(spec, keep=keep), layout, lengths, with_state=True, seed=3)
    tensors = tensors_of(case)
    on_gpu = moved(tensors)
    expected, found = run_case(reference_stack, case, tensors), run_case(vendor_stack, case, on_gpu)
    ours = [*present(found), *on_gpu_gradients(present(found), on_gpu.leaves())]
    theirs = [*present(expected), *gradients(expected, tensors.leaves())]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-9, atol=1e-9)


def on_gpu_gradients(results: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """As `gradients`: the incoming ones are drawn on the CPU."""
    generator = torch.Generator().manual_seed(0)
    incoming = [torch.randn(one.shape, generator=generator, dtype=torch.float64) for one in results]
    incoming = [gradient.to(one) for gradient, one in zip(incoming, results, strict=True)]
    return list(torch.autograd.grad(results, leaves, incoming))


@pytest.mark.parametrize("keep", KEEPS)
def test_dropout_draws_from_the_gpu_generator_and_is_the_same_in_the_recomputation(keep: Keep) -> None:
    spec = StackSpec("lstm", 4, 6, num_layers=3, dropout=0.4, chunk_steps=3, keep=keep)
    case = Case(spec, "dense", (9, 9), with_state=False, seed=1)
    tensors = moved(tensors_of(case))
    found = run_case(vendor_stack, case, tensors)
    torch.manual_seed(1)
    ones = torch.ones(9, 2, 6, dtype=torch.float64, device=CUDA)
    noise = [apply_mask(mask, 0, ones, 0.4) for mask in draw_masks(spec, 18, CUDA)]
    expected = reference_stack(spec, tensors.inputs, None, None, tensors.weights, masks=noise)
    ours = [*present(found), *on_gpu_gradients(present(found), tensors.leaves())]
    theirs = [*present(expected), *on_gpu_gradients(present(expected), tensors.leaves())]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert 0.2 < noise[0].eq(0).double().mean().item() < 0.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keep", ["outputs", "boundaries"])
def test_other_dtypes_are_as_near_to_float64_as_the_fused_call(keep: Keep, dtype: torch.dtype) -> None:
    spec = StackSpec("lstm", 16, 32, num_layers=2, chunk_steps=16)
    case = Case(spec, "dense", (100,) * 4, with_state=True, seed=2)
    exact = tensors_of(case)
    truth = run_case(reference_stack, case, exact)
    true = [*present(truth), *gradients(truth, exact.leaves())]

    def errors(keep: Keep) -> list[float]:
        tensors = moved(exact, dtype)
        found = run_case(vendor_stack, with_keep(case, keep), tensors)
        ours = [*present(found), *on_gpu_gradients(present(found), tensors.leaves())]
        assert {one.dtype for one in ours} == {dtype}
        return [((o.cpu().double() - t).abs().max() / t.abs().max()).item() for o, t in zip(ours, true, strict=True)]

    for ours, theirs in zip(errors(keep), errors("gates"), strict=True):
        assert ours <= 2 * theirs + 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("keep", ["outputs", "boundaries"])
def test_autocast_of_the_forward_pass_holds_in_the_recomputation(keep: Keep) -> None:
    spec = StackSpec("gru", 16, 32, num_layers=2, chunk_steps=16)
    case = Case(spec, "dense", (60,) * 4, with_state=False, seed=2)
    tensors = moved(tensors_of(case), torch.float32)

    def run(keep: Keep) -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.float16):
            found = run_case(vendor_stack, with_keep(case, keep), tensors)
        assert found[0].dtype == torch.float16
        return on_gpu_gradients(present(found), tensors.leaves())

    for one, other in zip(run(keep), run("gates"), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() <= 0.02 * other.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_weights_reach_cudnn_in_one_buffer(dtype: torch.dtype) -> None:
    case = Case(StackSpec("lstm", 4, 6, num_layers=3, chunk_steps=3), "dense", (9, 9), with_state=False, seed=1)
    tensors = moved(tensors_of(case), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_gpu_gradients(present(run_case(vendor_stack, case, tensors)), tensors.leaves())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_chunks_need_a_fraction_of_the_memory(cell: Cell, dropout: float) -> None:
    spec = StackSpec(cell, 64, 256, num_layers=3, dropout=dropout)
    case = Case(spec, "dense", (2000,) * 16, with_state=False, seed=1)
    tensors = moved(tensors_of(case), torch.float32)

    def peak(keep: Keep) -> float:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found = run_case(vendor_stack, with_keep(case, keep), tensors)
        torch.autograd.backward(found[0].square().mean())
        return torch.cuda.max_memory_allocated() - before

    outputs = 4 * 2000 * 16 * 256
    assert peak("gates") > 2.5 * peak("outputs")
    assert peak("boundaries") < peak("outputs")
    assert peak("boundaries") < 6 * outputs
