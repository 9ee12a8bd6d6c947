"""Lean layers beside others: in two threads, after a fork, and in the two processes of a distributed run."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch import Tensor

from lowtide.ops.spec import KEEPS, Keep
from tests.nn.cases import CELLS, Arguments, Case, Layer, Results, differentiate, lean_layer

SIZABLE = Case(input_size=24, hidden_size=48, steps=40, lengths=(40,) * 8)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", CELLS)
def test_two_threads_at_once_compute_bitwise_what_one_computes_alone(cell: str, keep: Keep) -> None:
    cases = [dataclasses.replace(SIZABLE, cell=cell, keep=keep, seed=seed) for seed in (1, 2)]
    # Made here: making one seeds the generator that all threads share.
    layers = [lean_layer(case, torch.float32) for case in cases]
    alone = [run(layer, case) for layer, case in zip(layers, cases, strict=True)]
    together: list[list[Results]] = [[], []]
    start = threading.Barrier(2)

    def work(which: int) -> None:
        start.wait()
        together[which].extend(run(layers[which], cases[which]) for _ in range(4))

    threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, runs in zip(alone, together, strict=True):
        assert len(runs) == 4
        for results in runs:
            torch.testing.assert_close(results, expected, rtol=0, atol=0)


def run(layer: Layer, case: Case) -> Results:
    layer.zero_grad()
    results = differentiate(layer, case, Arguments.draw(case, torch.float32))
    return {name: result.clone() for name, result in results.items()}


FORKING = """
import os, select, signal, sys, torch
from tests.nn.cases import Case, differentiate_lean

torch.set_num_threads(2)
cases = [Case(cell=cell, keep=keep, input_size=24, hidden_size=48, steps=40, lengths=(40,) * 8)
         for cell in ("LSTM", "GRU", "RNN_TANH") for keep in ("gates", "outputs", "boundaries")]
before = [differentiate_lean(case, torch.float32) for case in cases]
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    equal = all(
        torch.equal(result, expected[name])
        for case, expected in zip(cases, before)
        for name, result in differentiate_lean(case, torch.float32).items()
    )
    os.write(writing, b"equal" if equal else b"unequal")
    os._exit(0)
ready, _, _ = select.select([reading], [], [], 60)
said = os.read(reading, 16) if ready else b"hangs"
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
after = [differentiate_lean(case, torch.float32) for case in cases]
assert all(torch.equal(one[name], other[name]) for one, other in zip(before, after) for name in one)
print(said.decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_computes_what_its_parent_computed() -> None:
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, env=environment, timeout=240
    )
    assert (done.stdout.strip(), done.returncode) == ("equal", 0), done.stderr


def loss_of(layer: torch.nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
    outputs, _ = layer(inputs)
    return torch.nn.functional.mse_loss(outputs, target)


def draw_batch(case: Case) -> tuple[Tensor, Tensor]:
    inputs = Arguments.draw(case).inputs.detach()
    target = torch.randn(case.steps, case.sequences, case.hidden_size, generator=torch.Generator().manual_seed(7))
    return inputs, target.double()


def run_rank(rank: int, case: Case, folder: Path) -> None:
    """One of two processes: train on its half of the batch, and write the gradients that both agree on."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    layer = lean_layer(dataclasses.replace(case, seed=case.seed + rank))
    replica = torch.nn.parallel.DistributedDataParallel(layer)
    half = case.sequences // 2
    inputs, target = (tensor[:, rank * half : (rank + 1) * half] for tensor in draw_batch(case))
    torch.autograd.backward(loss_of(replica, inputs, target))
    torch.save({name: weight.grad for name, weight in layer.named_parameters()}, folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()
    os._exit(0)  # gloo's threads may abort a process that ends by itself


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_two_distributed_processes_get_the_gradients_of_one(cell: str, tmp_path: Path) -> None:
    case = Case(cell=cell, lengths=(9, 9, 9, 9), seed=3)
    torch.multiprocessing.spawn(run_rank, (case, tmp_path), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    layer = lean_layer(case)
    torch.autograd.backward(loss_of(layer, *draw_batch(case)))
    expected = {name: weight.grad for name, weight in layer.named_parameters()}
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"rank{rank}.pt"), expected)
