"""A fingerprint is another one wherever something that decides a plan is, and the same where nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lowtide.memory.allocator import AllocatorReport
from lowtide.nn.losses import mae, mse
from lowtide.planning.circumstances import circumstances, fingerprint
from lowtide.planning.workload import Workload, read_workload
from tests.planning.cases import Tagger, sample

ROOT = Path(__file__).parents[2]
REPORT = AllocatorReport(65536, huge_pages=True)
LENGTHS = np.arange(1, 40)


def name_of(
    model: nn.Module | None = None,
    loss_fn: Any = mse,  # noqa: ANN401 - a function or a module
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    *,
    batch: Any = None,  # noqa: ANN401 - a sample
    batch_size: int = 8,
    lengths: Any = LENGTHS,  # noqa: ANN401 - numbers
    precision: str = "float32",
    report: AllocatorReport = REPORT,
) -> str:
    model = model or Tagger()
    workload: Workload = read_workload(model, sample=batch or sample(), lengths=lengths, batch_size=batch_size)
    around = circumstances(torch.device("cpu"), report)
    made = optimizer(model.parameters())
    return fingerprint(model, loss_fn, made, workload, precision=precision, around=around)


class Repeating(Tagger):
    """Runs its layers again and again: a number that no parameter tells."""

    def __init__(self, times: int) -> None:
        """So many times."""
        super().__init__()
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Values for each step."""
        for _ in range(self.times):
            x = x + self.rnn(x)[0][..., :1]
        values: torch.Tensor = self.head(self.rnn(x)[0])
        return values


class Buffered(Tagger):
    """Holds a table that no layer tells."""

    def __init__(self, size: int) -> None:
        """Of so many numbers."""
        super().__init__()
        self.register_buffer("table", torch.zeros(size))


def in_eval() -> nn.Module:
    return Tagger().eval()


def frozen() -> nn.Module:
    model = Tagger()
    model.head.requires_grad_(requires_grad=False)
    return model


WITHOUT_LENGTHS = sample(lengths=False)
OTHERS: dict[str, Callable[[], str]] = {
    "more units": lambda: name_of(Tagger(hidden=17)),
    "another cell": lambda: name_of(Tagger("GRU")),
    "stock layers": lambda: name_of(Tagger(lean=False)),
    "evaluation": lambda: name_of(in_eval()),
    "frozen parameters": lambda: name_of(frozen()),
    "doubles": lambda: name_of(Tagger().double()),
    "a number of the model's": lambda: name_of(Repeating(2)),
    "another number of the model's": lambda: name_of(Repeating(3)),
    "a buffer": lambda: name_of(Buffered(1000)),
    "a larger buffer": lambda: name_of(Buffered(2000)),
    "another loss": lambda: name_of(loss_fn=mae),
    "a loss of one's own": lambda: name_of(loss_fn=lambda out, wanted: ((out - wanted) ** 2).mean(-1)),
    "another one": lambda: name_of(loss_fn=lambda out, wanted: ((out - wanted) ** 4).mean(-1)),
    "a loss module": lambda: name_of(loss_fn=nn.MSELoss(reduction="none")),
    "another optimizer": lambda: name_of(optimizer=torch.optim.SGD),
    "another setting of it": lambda: name_of(optimizer=lambda own: torch.optim.Adam(own, amsgrad=True)),
    "another batch size": lambda: name_of(batch_size=16),
    "one longer sequence": lambda: name_of(lengths=[*LENGTHS[:-1], 41]),
    "more sequences": lambda: name_of(lengths=[*LENGTHS, 39]),
    "a batch without lengths": lambda: name_of(batch=WITHOUT_LENGTHS),
    "wider targets": lambda: name_of(batch=(torch.randn(4, 10, 8), torch.randn(4, 10, 9), torch.full((4,), 10))),
    "wider targets a sequence": lambda: name_of(batch=(torch.randn(4, 10, 8), torch.randn(4, 9), torch.full((4,), 10))),
    "targets a sequence": lambda: name_of(batch=(torch.randn(4, 10, 8), torch.randn(4, 3), torch.full((4,), 10))),
    "double targets": lambda: name_of(
        batch=(torch.randn(4, 10, 8), torch.randn(4, 10, 4).double(), torch.full((4,), 10))
    ),
    "bfloat16": lambda: name_of(precision="bfloat16"),
    "another allocator": lambda: name_of(report=AllocatorReport(None, huge_pages=True)),
}


def test_whatever_decides_a_plan_changes_its_name() -> None:
    names = {"as it is": name_of(), **{kind: make() for kind, make in OTHERS.items()}}
    assert len(set(names.values())) == len(names), sorted((name, kind) for kind, name in names.items())


def test_another_number_of_threads_changes_it() -> None:
    before, threads = name_of(), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert name_of() != before
    finally:
        torch.set_num_threads(threads)


def test_what_does_not_decide_a_plan_leaves_it() -> None:
    model = Tagger()
    before = name_of(model)
    with torch.no_grad():
        model.head.weight.zero_()
    model(sample()[0]).sum().backward()
    assert name_of(model) == before
    assert name_of(Tagger(), batch=sample(rows=2, steps=7)) == before


def test_a_step_that_makes_the_optimizers_state_changes_it() -> None:
    model = Tagger()
    workload = read_workload(model, sample=sample(), batch_size=8)
    optimizer = torch.optim.Adam(model.parameters())
    around = circumstances(torch.device("cpu"), REPORT)
    before = fingerprint(model, mse, optimizer, workload, precision="float32", around=around)
    model(sample()[0]).sum().backward()
    optimizer.step()
    assert fingerprint(model, mse, optimizer, workload, precision="float32", around=around) != before


def of_sets(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """A loss with a constant whose order is another one in each process."""
    return (
        mse(out, wanted) if str(out.dtype) in {"torch.float32", "torch.float64", "torch.bfloat16"} else mae(out, wanted)
    )


def test_another_process_gives_the_same_name() -> None:
    program = "from tests.planning.test_circumstances import *; print(name_of(Repeating(2), of_sets))"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == name_of(Repeating(2), of_sets)


def test_it_is_told_what_figures_belong_to() -> None:
    found = circumstances(torch.device("cpu"), REPORT)
    assert found["threads"] == torch.get_num_threads()
    assert found["torch"] == torch.__version__
    assert found["device"] == "cpu"
    assert (found["mmap_threshold"], found["huge_pages"]) == (65536, "True")
