"""Runs inside a measuring child: StreamStep and what it is compared with, on the same model and data.

The model is the one that people train: two LSTM layers and a linear head, a squared error at every step. Inputs lie in
a file that is mapped, and only chunks of them are read; the targets are a view of one row, since they are not what is
measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lowtide
from lowtide.memory import read_status
from lowtide.nn.losses import mse

SAMPLING_SECONDS = 0.002


@dataclass(frozen=True)
class StreamWork:
    """A model and a batch of long sequences."""

    steps: int
    batch: int = 32
    inputs: int = 128
    hidden: int = 256
    layers: int = 2
    chunk_steps: int = 256
    keep_chunks: int = 0
    data: str = ""
    """A file of inputs; made in memory where empty."""


class Regressor(nn.Module):
    """An output for each step."""

    def __init__(self, work: StreamWork, *, lean: bool) -> None:
        """Make the layers, stock or lean, with the same weights at every call."""
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.LSTM(work.inputs, work.hidden, work.layers)
        self.head = nn.Linear(work.hidden, 1)
        if lean:
            lowtide.lean(self.layers)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute (T, B, 1) and the states behind it."""
        outputs, state = self.layers(x, state)
        return self.head(outputs), state


class LeanRegressor(Regressor):
    """The same with states that its layers carry themselves."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override] # no state to take
        """Compute (T, B, 1)."""
        outputs: Tensor = self.head(self.layers(x)[0])
        return outputs


def answer(request: dict[str, Any]) -> Any:  # noqa: ANN401 - each request has its own answer, all of them fit for JSON
    """Do what a request names."""
    act: Callable[..., Any] = {
        "make data": make_data,
        "stream": stream,
        "speeds": speeds,
        "kept": kept,
    }[request["act"]]
    return act(StreamWork(**request["work"]))


def make_data(work: StreamWork) -> None:
    """Write inputs to a file, block by block."""
    shape = (work.steps, work.batch, work.inputs)
    array = np.lib.format.open_memmap(work.data, "w+", np.float32, shape)
    generator = np.random.default_rng(0)
    for start in range(0, work.steps, 1000):
        stop = min(start + 1000, work.steps)
        array[start:stop] = generator.standard_normal((stop - start, *shape[1:]), np.float32)
    array.flush()


def read_data(work: StreamWork) -> tuple[Any, Tensor]:
    """Inputs, mapped or in memory, and targets that take no room."""
    targets = torch.zeros(1, work.batch, 1).expand(work.steps, -1, -1)
    if work.data:
        return np.load(Path(work.data), mmap_mode="r")[: work.steps], targets
    torch.manual_seed(1)
    return torch.randn(work.steps, work.batch, work.inputs), targets


def stream(work: StreamWork) -> dict[str, float]:
    """Seconds of a step, and how far it raises the anonymous memory of this process."""
    model = LeanRegressor(work, lean=True)
    step = make_step(model, work)
    inputs, targets = read_data(work)
    step(inputs[: 2 * work.chunk_steps], targets[: 2 * work.chunk_steps])
    model.zero_grad()
    with anonymous_peak() as peak:
        start = time.perf_counter()
        step(inputs, targets)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "growth": peak[0]}


def make_step(model: nn.Module, work: StreamWork) -> lowtide.StreamStep:
    """A stream over the work's chunks."""
    return lowtide.StreamStep(model, mse, chunk_steps=work.chunk_steps, keep_chunks=work.keep_chunks)


@contextmanager
def anonymous_peak() -> Iterator[list[int]]:
    """How far the block raises RssAnon, sampled: VmHWM counts the mapped file too, which comes and goes."""
    before, peak, done = read_status().anonymous, [0], threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLING_SECONDS):
            peak[0] = max(peak[0], read_status().anonymous - before)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()


def speeds(work: StreamWork) -> dict[str, list[float]]:
    """Time steps a second, in turns: the stream, stock training of short sequences, and checkpointing by chunk."""
    short = 1000
    inputs, targets = read_data(work)
    streamed, stock = LeanRegressor(work, lean=True), Regressor(work, lean=False)
    step = make_step(streamed, work)

    def run_stream() -> int:
        step(inputs, targets)
        return work.steps

    def run_stock() -> int:
        mse(stock(inputs[:short])[0], targets[:short]).mean().backward()  # type: ignore[no-untyped-call]
        return short

    def run_checkpointed() -> int:
        checkpointed(stock, inputs, targets, work.chunk_steps).backward()  # type: ignore[no-untyped-call]
        return work.steps

    contestants = {"stream": (run_stream, 1), "stock": (run_stock, 5), "checkpoint": (run_checkpointed, 1)}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(3):
        for name, (run, times) in contestants.items():
            for _ in range(times):
                streamed.zero_grad()
                stock.zero_grad()
                start = time.perf_counter()
                steps = run()
                rates[name].append(steps / (time.perf_counter() - start))
    return rates


def checkpointed(model: nn.Module, inputs: Tensor, targets: Tensor, chunk_steps: int) -> Tensor:
    """Checkpointing as torch's documentation would have it: each chunk, loss included, is computed again."""

    def chunk(x: Tensor, y: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs, (h, c) = model(x, (h, c))
        return mse(outputs, y).sum(), h, c

    layers = model.layers
    assert isinstance(layers, nn.LSTM)
    h = c = torch.zeros(layers.num_layers, inputs.shape[1], layers.hidden_size)
    total = torch.zeros(())
    for start in range(0, len(inputs), chunk_steps):
        rows = slice(start, start + chunk_steps)
        loss, h, c = torch.utils.checkpoint.checkpoint(chunk, inputs[rows], targets[rows], h, c, use_reentrant=False)
        total = total + loss
    return total / (len(inputs) * inputs.shape[1])


def kept(work: StreamWork) -> dict[str, list[float]]:
    """Seconds of a step with no chunk kept and with all of them, in turns."""
    inputs, targets = read_data(work)
    model = LeanRegressor(work, lean=True)
    everything = -(-work.steps // work.chunk_steps)
    steps = {
        name: lowtide.StreamStep(model, mse, chunk_steps=work.chunk_steps, keep_chunks=keep)
        for name, keep in (("none", 0), ("all", everything))
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(4):
        for name, step in steps.items():
            model.zero_grad()
            start = time.perf_counter()
            step(inputs, targets)
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}
