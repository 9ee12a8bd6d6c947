"""Train a character model on the source text of Python's own standard library, stock and lean, under one memory limit.

Three runs, each in a process of its own: the stock layers without a limit, the stock layers under a limit, the lean
layers under the same limit. All see the same batches and start from the same parameters. At the end a table shows time,
memory and loss side by side. Linux only: the limit is RLIMIT_DATA, the memory figures come from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import string
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import lowtide
from lowtide.memory import growth, read_status, settle_allocator
from lowtide.memory.allocator import TORCH_HUGE_PAGES

ALPHABET = string.printable.encode()
BATCH_SIZE = 32
SEQUENCE_STEPS = 1000
EMBEDDING_SIZE = 64
HIDDEN_SIZE = 256
LEARNING_RATE = 3e-3
MEGABYTE = 1_000_000


class CharacterModel(nn.Module):
    """Two LSTM layers that predict the next character; nothing in it knows of Lowtide."""

    def __init__(self) -> None:
        """Draw the parameters."""
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), EMBEDDING_SIZE)
        self.recurrent = nn.LSTM(EMBEDDING_SIZE, HIDDEN_SIZE, num_layers=2, batch_first=True)
        self.head = nn.Linear(HIDDEN_SIZE, len(ALPHABET))

    def forward(self, characters: Tensor) -> Tensor:
        """From (B, T) character numbers to (B, T, alphabet) scores of the next one."""
        outputs, _ = self.recurrent(self.embedding(characters))
        scores: Tensor = self.head(outputs)
        return scores


# The child: one training run, one line of JSON a step.


def standard_library_text() -> Tensor:
    """The standard library's top-level modules as one row of character numbers."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"\n".join(path.read_bytes() for path in files)
    numbers = bytes.maketrans(ALPHABET, bytes(range(len(ALPHABET))))
    others = bytes(set(range(256)) - set(ALPHABET))
    return torch.frombuffer(bytearray(text.translate(numbers, delete=others)), dtype=torch.uint8)


def batches(text: Tensor, steps: int) -> Iterator[Tensor]:
    """Windows of `steps` characters and the one after them, drawn at random, the same ones in every run."""
    generator = torch.Generator().manual_seed(1)
    while True:
        starts = torch.randint(len(text) - steps, (BATCH_SIZE, 1), generator=generator)
        yield text[starts + torch.arange(steps + 1)].long()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> float:
    """One optimizer step; returns the loss in nats a character."""
    optimizer.zero_grad()
    scores = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def limit_data(megabytes: int) -> None:
    """Let this process take `megabytes` more than it holds now; beyond that malloc fails."""
    limit = read_status().data + megabytes * MEGABYTE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def train(layers: str, *, steps: int, limit_mb: int) -> None:
    """Train, and print a line of JSON after each step and one with the growth of memory at the end."""
    settle_allocator()
    torch.manual_seed(0)
    model: nn.Module = CharacterModel()
    if layers == "lean":
        model = lowtide.lean(model, keep="outputs")
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    text = standard_library_text()
    # A short step first: thread pools, optimizer state and lazily loaded code belong to no run's growth.
    train_step(model, optimizer, next(batches(text, steps=16)))
    if limit_mb:
        limit_data(limit_mb)
    source = batches(text, steps=SEQUENCE_STEPS)
    with growth() as peak:
        for _ in range(steps):
            batch = next(source)
            start = time.perf_counter()
            loss = train_step(model, optimizer, batch)
            print(json.dumps({"loss": loss, "seconds": time.perf_counter() - start}), flush=True)
    print(json.dumps({"peak": peak.bytes}), flush=True)


# The parent: three children, a progress bar, a table.


@dataclass(frozen=True)
class Run:
    """What a child is asked to do."""

    layers: str
    limit_mb: int
    """Megabytes above what the process holds before training; 0 for no limit."""

    @property
    def title(self) -> str:
        """How the run is called in the bar and in the table."""
        return f"{self.layers}, {f'limit {self.limit_mb} MB' if self.limit_mb else 'no limit'}"


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run: Run
    losses: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    peak_bytes: int | None = None
    death: str | None = None


def progress_bar(title: str, done: int, total: int, loss: float | None, *, width: int = 30) -> str:
    """One line that says how far a run is."""
    filled = width * done // total
    bar = "#" * filled + "." * (width - filled)
    return f"{title:<22} [{bar}] {done:>3}/{total}" + ("" if loss is None else f"  loss {loss:.3f}")


def show(line: str, *, milestone: bool, last: bool = False) -> None:
    """Draw over the previous line on a terminal; elsewhere print a line of its own for each milestone."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif milestone:
        print(line, file=sys.stderr, flush=True)


def execute(run: Run, steps: int) -> Outcome:
    """Run a child to its end, whichever that is."""
    command = [sys.executable, __file__, "--child", run.layers, "--steps", str(steps), "--limit-mb", str(run.limit_mb)]
    environment = {**os.environ, TORCH_HUGE_PAGES: "1"}
    losses: list[float] = []
    seconds: list[float] = []
    peak = None
    show(progress_bar(run.title, 0, steps, None), milestone=False)
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            report = json.loads(line)
            peak = report.get("peak")
            if peak is None:
                losses.append(report["loss"])
                seconds.append(report["seconds"])
                quarter = len(losses) % max(1, steps // 4) == 0 and len(losses) < steps
                show(progress_bar(run.title, len(losses), steps, losses[-1]), milestone=quarter)
        child.wait()
        errors.seek(0)
        death = None if child.returncode == 0 else how_it_died(child.returncode, errors.read(), len(losses))
    bar = progress_bar(run.title, len(losses), steps, losses[-1] if losses else None)
    show(f"{bar}  {'died' if death else 'done'}", milestone=True, last=True)
    return Outcome(run, tuple(losses), tuple(seconds), peak, death)


def how_it_died(code: int, errors: str, steps_done: int) -> str:
    """The exit status and the last thing that the child said, on one line."""
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    last = said[-1] if said else "without a word"
    status = f"signal {-code}" if code < 0 else f"exit {code}"
    return f"died in step {steps_done + 1} ({status}): {last}"


def table(outcomes: list[Outcome]) -> str:
    """Time, memory and loss of every run, side by side."""
    rows = [
        ("run", "step time", "peak growth", "first loss", "last loss"),
        *(table_row(outcome) for outcome in outcomes),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    deaths = [f"{outcome.run.title}: {outcome.death}" for outcome in outcomes if outcome.death]
    return "\n".join([*lines, "", *deaths] if deaths else lines)


def table_row(outcome: Outcome) -> tuple[str, ...]:
    """A run's cells; a dash where it did not live to have a figure."""
    if outcome.death is not None or outcome.peak_bytes is None:
        return (outcome.run.title, "died", "-", "-", "-")
    return (
        outcome.run.title,
        f"{statistics.median(outcome.seconds):.2f} s",
        f"{outcome.peak_bytes / MEGABYTE:.0f} MB",
        f"{outcome.losses[0]:.4f}",
        f"{outcome.losses[-1]:.4f}",
    )


def compare(steps: int, limit_mb: int) -> int:
    """Run all three and print the table; 0 where it came out as it should."""
    runs = [Run("stock", 0), Run("stock", limit_mb), Run("lean", limit_mb)]
    print(
        f"Two LSTM layers of {HIDDEN_SIZE} units, {BATCH_SIZE} sequences of {SEQUENCE_STEPS} characters, {steps} steps",
        file=sys.stderr,
    )
    outcomes = [execute(run, steps) for run in runs]
    print(f"\n{table(outcomes)}")
    unlimited, stock, lean = (outcome.death is None for outcome in outcomes)
    return 0 if unlimited and lean and not stock else 1


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; be the child or the parent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="optimizer steps of each run")
    parser.add_argument("--limit-mb", type=int, default=450, help="what training may take on top of the loaded process")
    parser.add_argument("--child", choices=["stock", "lean"], help="be one run (used by the script itself)")
    chosen = parser.parse_args(arguments)
    if chosen.child:
        train(chosen.child, steps=chosen.steps, limit_mb=chosen.limit_mb)
        return 0
    return compare(chosen.steps, chosen.limit_mb)


if __name__ == "__main__":
    sys.exit(main())
