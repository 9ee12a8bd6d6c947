"""Runs inside a measuring child: the stock layer and lean ones at the same work, by time or by growth of memory.

Every contestant has the same parameters and sees the same batch. Times are taken in turns, so that a machine that
slows down slows all of them; memory is taken of one contestant a process, since an allocator remembers. A turn is one
step that does not count and one that does: some virtual machines give memory that lay free for two seconds back to
their host and pay dearly for it when it is touched again, which training, step after step, does not do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import lowtide
from benchmarks.contestant import Contestant
from benchmarks.work import Work
from lowtide.memory import growth

WARM_UP_STEPS = 8
"""Time steps of the small batch before memory is measured: thread pools and lazily loaded code grow nobody's peak."""


@dataclass(frozen=True)
class Batch:
    """What a layer is given, and what its outputs are compared with."""

    inputs: Tensor | PackedSequence
    target: Tensor
    """As large as the outputs: (T, B, H), or (rows, H) of a packed batch."""


@dataclass(frozen=True)
class Racer:
    """A layer about to run steps on a batch."""

    layer: nn.RNNBase
    batch: Batch
    threads: int
    counting: int
    """Steps that count."""
    warms_up: bool = True
    """Whether each step that counts follows one that does not, as in training, where the same work comes round."""

    def prepare(self) -> None:
        """Set up what is no part of a step."""
        torch.set_num_threads(self.threads)
        self.layer.zero_grad()
        _rows(self.batch.inputs).grad = None

    def step(self) -> None:
        """One forward pass, and one backward pass from a gradient made before."""
        run_layer(self.layer, self.batch.inputs).backward(self.batch.target)  # type: ignore[no-untyped-call] # torch's

    def seconds(self) -> float:
        """How long a step takes that follows another one."""
        if self.warms_up:
            self.prepare()
            self.step()
        self.prepare()
        start = time.perf_counter()
        self.step()
        return time.perf_counter() - start


def make_stock(work: Work) -> nn.RNNBase:
    """Torch's own layer, with the same parameters at every call."""
    torch.manual_seed(0)
    if work.cell == "LSTM":
        return nn.LSTM(work.inputs, work.hidden, work.layers)
    if work.cell == "GRU":
        return nn.GRU(work.inputs, work.hidden, work.layers)
    return nn.RNN(work.inputs, work.hidden, work.layers)


def make_layer(work: Work, contestant: Contestant) -> nn.RNNBase:
    """The layer that a contestant runs."""
    stock = make_stock(work)
    return stock if contestant.keep is None else lowtide.lean(stock, keep=contestant.keep)


def make_batch(work: Work, *, inputs_require_grad: bool) -> Batch:
    """The same random batch at every call."""
    torch.manual_seed(1)
    dense = torch.randn(work.steps, work.batch, work.inputs)
    if not work.packed:
        dense.requires_grad_(inputs_require_grad)
        return Batch(dense, torch.randn(work.steps, work.batch, work.hidden))
    packed = pack_padded_sequence(dense, torch.tensor(work.lengths))
    rows = packed.data.detach().requires_grad_(inputs_require_grad)
    return Batch(PackedSequence(rows, packed.batch_sizes), torch.randn(len(rows), work.hidden))


def run_layer(layer: nn.RNNBase, inputs: Tensor | PackedSequence) -> Tensor:
    """The outputs of the last layer at all steps."""
    return _rows(layer(inputs)[0])


def time_contestants(
    work: Work, contestants: Sequence[Contestant], *, repeats: int, slow_first: bool
) -> list[list[float]]:
    """Seconds of each contestant's steps.

    Args:
        work: What they compute.
        contestants: Who takes part, in this order in each turn.
        repeats: Steps that count.
        slow_first: Whether the first contestant takes so long that half the steps, and none to warm up, must do.
    """
    batch = make_batch(work, inputs_require_grad=True)
    all_threads = torch.get_num_threads()
    racers = [Racer(make_layer(work, one), batch, one.threads or all_threads, repeats) for one in contestants]
    if slow_first:
        racers[0] = replace(racers[0], warms_up=False, counting=max(1, repeats // 2))
    return take_turns(racers)


def take_turns(racers: Sequence[Racer]) -> list[list[float]]:
    """Let the racers run their steps in turns; return the seconds of those that count."""
    seconds: list[list[float]] = [[] for _ in racers]
    for turn in range(max(racer.counting for racer in racers)):
        for own, racer in zip(seconds, racers, strict=True):
            if turn < racer.counting:
                own.append(racer.seconds())
    return seconds


def grow(work: Work, contestant: Contestant) -> int:
    """How far one forward and backward pass of a mean square loss raises the peak of this process, in bytes."""
    layer = make_layer(work, contestant)
    short = replace(work, steps=WARM_UP_STEPS, shortest=WARM_UP_STEPS - 1 if work.packed else 0)
    _descend(layer, make_batch(short, inputs_require_grad=False))
    layer.zero_grad()
    batch = make_batch(work, inputs_require_grad=False)
    with growth() as peak:
        _descend(layer, batch)
    return peak.bytes


def _descend(layer: nn.RNNBase, batch: Batch) -> None:
    loss = nn.functional.mse_loss(run_layer(layer, batch.inputs), batch.target)
    loss.backward()  # type: ignore[no-untyped-call] # torch ships it so


def _rows(inputs: Tensor | PackedSequence) -> Tensor:
    return inputs.data if isinstance(inputs, PackedSequence) else inputs
