"""torch.compile and FakeTensor see through a lean layer, and nobody who compiles nothing pays for Dynamo."""
# ruff: noqa: ANN401, D102, D107 - layers, states and results have as many forms as torch gives them; a module's forward needs no docstring

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import lowtide
import lowtide.nn
from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, Arguments, Case, class_arguments, lean_layer


class Tagged(torch.nn.Module):
    """A layer between two others, as models have it."""

    def __init__(self, case: Case, layer: torch.nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(case.seed)
        self.below = torch.nn.Linear(case.input_size, case.input_size, dtype=torch.float64)
        self.layer = lean_layer(case) if layer is None else layer
        width = (1 + case.bidirectional) * case.hidden_size
        self.above = torch.nn.Linear(width, 2, dtype=torch.float64)

    def forward(self, inputs: Tensor, hx: Any) -> tuple[Tensor, Any]:
        outputs, final = self.layer(self.below(inputs).tanh(), hx)
        return self.above(outputs), final


def trained(model: torch.nn.Module, runner: Any, arguments: Arguments) -> list[Tensor]:
    """Results of the model and the gradients of their sum."""
    model.zero_grad()
    outputs, final = runner(arguments.inputs, arguments.hx)
    states = final if isinstance(final, tuple) else (final,)
    torch.autograd.backward([part.square().sum() for part in (outputs, *states)])
    gradients = [leaf.grad for leaf in (arguments.inputs, *arguments.states, *model.parameters())]
    return [part.detach() for part in (outputs, *states, *gradients) if part is not None]


@pytest.fixture(autouse=True)
def _no_compiled_code_of_others() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_lean_model_compiles_into_one_graph_and_trains_alike(cell: str, keep: Keep) -> None:
    case = Case(cell=cell, keep=keep)
    model = Tagged(case)
    expected = trained(model, model, Arguments.draw(case))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(trained(model, compiled, Arguments.draw(case)), expected)


@pytest.mark.parametrize("cell", CELLS)
def test_compiled_without_gradients(cell: str) -> None:
    case = Case(cell=cell, bidirectional=True, batch_first=True, with_states=False)
    model = Tagged(case).eval()
    inputs = Arguments.draw(case).inputs.detach()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(inputs, None), model(inputs, None))


def test_one_graph_serves_every_length_of_input() -> None:
    case = Case(with_states=False)
    model = Tagged(case)
    graphs = []

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=count, dynamic=True)
    # None equal to another size: sizes that are equal at first are taken to stay so.
    for steps in (11, 8, 13):
        inputs = torch.ones(steps, 3, case.input_size, dtype=torch.float64)
        torch.testing.assert_close(compiled(inputs, None), model(inputs, None))
    assert len(graphs) == 1


@pytest.mark.parametrize("keep", KEEPS)
def test_compiled_with_lengths(keep: Keep) -> None:
    case = Case(keep=keep)
    layer = lean_layer(case)
    arguments = Arguments.draw(case)
    lengths = torch.tensor(case.lengths)
    compiled = torch.compile(lambda x, n: layer(x, lengths=n), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(arguments.inputs, lengths), layer(arguments.inputs, lengths=lengths))


def test_compiled_by_the_default_backend() -> None:
    case = Case()
    model = Tagged(case)
    expected = trained(model, model, Arguments.draw(case))
    torch.testing.assert_close(trained(model, torch.compile(model, fullgraph=True), Arguments.draw(case)), expected)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_fake_tensors_have_the_shapes_and_dtypes_of_real_ones(cell: str, keep: Keep) -> None:
    for bidirectional in (False, True):
        case = Case(cell=cell, keep=keep, bidirectional=bidirectional, batch_first=True)
        model = Tagged(case)
        expected = trained(model, model, Arguments.draw(case))
        with FakeTensorMode() as mode:
            name, options = class_arguments(case)
            layer = getattr(lowtide.nn, name)(
                case.input_size, case.hidden_size, **options, dtype=torch.float64, keep=keep
            )
            fake = Tagged(case, layer)
            results = trained(fake, fake, Arguments.draw(case))
        assert all(result.fake_mode is mode for result in results)  # type: ignore[attr-defined]
        assert [(part.shape, part.dtype) for part in results] == [(part.shape, part.dtype) for part in expected]


def test_layers_without_storage_give_results_without_storage() -> None:
    with torch.device("meta"):
        layer = lowtide.nn.LSTM(3, 4, 2, bidirectional=True)
        outputs, (h, c) = layer(torch.ones(5, 2, 3))
    assert {part.device.type for part in (outputs, h, c)} == {"meta"}
    assert (outputs.shape, h.shape, c.shape) == ((5, 2, 8), (4, 2, 4), (4, 2, 4))


MAKE = "layer = lowtide.nn.LSTM(3, 4)"
LEAN = "layer = lowtide.lean(torch.nn.Sequential(torch.nn.GRU(3, 4)))[0]"
CHECK_LATER = """
layer(torch.ones(5, 2, 3))[0].sum().backward()
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert torch._dynamo.config.allow_rnn
torch._dynamo.config.allow_rnn = False
import importlib
importlib.import_module("torch._dynamo.config")
assert not torch._dynamo.config.allow_rnn, "set once, not again"
assert not any(type(finder).__module__.startswith("lowtide.") for finder in sys.meta_path)
"""
CHECK_NOW = "assert torch._dynamo.config.allow_rnn"
LOAD = """
saved = pickle.dumps(lowtide.nn.LSTM(3, 4))
torch._dynamo.config.allow_rnn = False
pickle.loads(saved)
"""


@pytest.mark.parametrize(
    "program",
    [
        f"{MAKE}{CHECK_LATER}",
        f"{LEAN}{CHECK_LATER}",
        f"import torch._dynamo\n{MAKE}\n{CHECK_NOW}",
        f"import torch._dynamo\n{LEAN}\n{CHECK_NOW}",
        f"import torch._dynamo\n{LOAD}\n{CHECK_NOW}",
    ],
    ids=["made", "leaned", "made after Dynamo", "leaned after Dynamo", "loaded after Dynamo"],
)
def test_dynamo_is_told_to_look_into_lean_layers_but_not_imported_for_it(program: str) -> None:
    head = "import pickle, sys, torch, lowtide, lowtide.nn\n"
    done = subprocess.run([sys.executable, "-c", head + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
