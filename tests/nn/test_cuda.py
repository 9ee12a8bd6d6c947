"""On a GPU a lean layer agrees with torch's own, which is cuDNN's, in every keep mode, and under autocast."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

import lowtide
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, LAYOUTS, Arguments, Case, Layer, Results, differentiate, lean_layer, stock_layer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def on_gpu(layer: Layer, case: Case, dtype: torch.dtype) -> Results:
    drawn = Arguments.draw(case, dtype)
    leaves = [tensor.detach().cuda().requires_grad_() for tensor in (drawn.inputs, *drawn.states)]
    results = differentiate(layer.cuda(), case, Arguments(leaves[0], tuple(leaves[1:])))
    return {name: result.cpu() for name, result in results.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_float64_results_and_gradients_equal_stock(cell: str, keep: Keep, layout: str) -> None:
    for bidirectional, with_states in itertools.product([False, True], repeat=2):
        case = Case(
            cell=cell,
            keep=keep,
            layout=layout,
            lengths=(9, 7, 4),
            bidirectional=bidirectional,
            with_states=with_states,
            chunk_steps=2,
        )
        lean = on_gpu(lean_layer(case), case, torch.float64)
        torch.testing.assert_close(lean, on_gpu(stock_layer(case), case, torch.float64), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("cudnn", [True, False], ids=["with cuDNN", "without cuDNN"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_gives_the_dtypes_and_nearly_the_numbers_of_stock(
    cell: str, keep: Keep, dtype: torch.dtype, *, cudnn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "enabled", cudnn)
    for layout in ("dense", "packed, sorted"):
        case = Case(cell=cell, keep=keep, layout=layout, lengths=(9, 7, 4), chunk_steps=2)
        results = []
        for layer in (lean_layer(case, torch.float32), stock_layer(case, torch.float32)):
            with torch.autocast("cuda", dtype=dtype):
                results.append(on_gpu(layer, case, torch.float32))
        tolerance = 0.02 if dtype == torch.float16 else 0.15
        torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("keep", KEEPS)
def test_cudnn_finds_the_weights_in_one_piece(keep: Keep) -> None:
    case = Case(keep=keep)
    layer = lean_layer(case, torch.float32)
    layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.detach().clone())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_gpu(layer, case, torch.float32)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_tensors_on_two_devices_are_refused_as_torch_refuses_them(cell: str) -> None:
    said = []
    for layer in (getattr(torch.nn, cell)(3, 4), lowtide.lean(getattr(torch.nn, cell)(3, 4))):
        for here, there in (("cuda", "cpu"), ("cpu", "cuda")):
            layer.to(there)
            with pytest.raises(RuntimeError) as refusal:
                layer(torch.ones(5, 2, 3, device=here))
            said.append(str(refusal.value))
    assert said[:2] == said[2:]
