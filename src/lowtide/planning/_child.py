"""The probe itself: a fresh interpreter that runs training steps and tells what they took.

    python -m lowtide.planning._child FOLDER

FOLDER holds `subject.pt` and `limits.json`. Trials come as lines of JSON on the standard input; each answer is a line
on what was the standard output (which then belongs to the standard error, since a user's forward may print). The
process volunteers as the first to be killed where memory runs out, and ends by itself with `OVER` when it holds more
than it may.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch

from lowtide.errors import LowtideError
from lowtide.memory.allocator import MMAP_THRESHOLD, settle_allocator
from lowtide.memory.cuda_allocator import settle_cuda_allocator
from lowtide.memory.held import held
from lowtide.memory.status import read_status
from lowtide.memory.storages import tensors_in
from lowtide.memory.watch import watch
from lowtide.planning.subject import Subject, read_subject
from lowtide.planning.torch_settings import set_torch
from lowtide.planning.trial import OVER, Reading, Trial
from lowtide.step.choice import Choice
from lowtide.step.planned import PlannedStep

_LOOK_SECONDS = 0.004


def main(folder: Path) -> None:
    """Answer trials until the input ends."""
    answers = _own_output()
    limits = json.loads((folder / "limits.json").read_text(encoding="utf-8"))
    _volunteer()
    if limits["settled"]:
        settle_allocator(mmap_threshold=MMAP_THRESHOLD)
    torch.set_num_threads(limits["threads"])
    set_torch(limits["torch"])
    _stop_above(limits["bytes"])
    _import_all(limits["modules"])
    subject = read_subject(folder / "subject.pt")
    if limits["settled"] and any(one.is_cuda for one in subject.model.parameters()):
        settle_cuda_allocator()
    probe = Probe(subject)
    gc.collect()
    gc.freeze()  # libraries' objects are many: looking through them before each trial would take longer than it
    _say(answers, {"ready": held()})
    for line in sys.stdin:
        _say(answers, _answer(probe, json.loads(line)))


class Probe:
    """Runs trials on one subject."""

    def __init__(self, subject: Subject) -> None:
        """Remember what is held before the first step."""
        self._subject = subject
        self._step = self._step_by(_OneChoice(Choice(1, 1, None), subject.precision))
        self._device = next((one.device for one in subject.model.parameters()), torch.device("cpu"))
        self._base = self._held()
        self._settled: int | None = None
        """What training holds between two steps: what was left behind by the first trial."""

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    def run(self, trial: Trial) -> Reading:
        """Run a trial.

        Raises:
            LowtideError: The step refuses to run so.
        """
        optimizer, pattern = self._subject.optimizer, self._subject.pattern
        for group in optimizer.param_groups:
            if trial.foreach is not None and "foreach" in group:
                group["foreach"] = trial.foreach
        _let_go()
        before = self._held() - self._base
        chosen = _OneChoice(trial.choice, self._subject.precision)
        if trial.anew:
            self._step = self._step_by(chosen)
        self._step.follow(chosen)
        if self._on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        step_seconds: list[float] = []
        optimizer_seconds: list[float] = []
        begun = time.perf_counter()
        with watch() as peak:
            batch = pattern.make(trial.rows, trial.choice.steps)
            while len(step_seconds) < trial.repeats and (
                not step_seconds or time.perf_counter() - begun < trial.seconds
            ):
                start = self._now()
                self._step(batch)
                stepped = self._now()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                step_seconds.append(stepped - start)
                optimizer_seconds.append(self._now() - stepped)
            del batch
        growth = peak.bytes - self._base
        if self._on_gpu:
            growth = torch.cuda.max_memory_reserved(self._device) - self._base
        _let_go()
        after = self._held() - self._base
        if self._settled is None:
            self._settled = before = after
        growth -= max(0, before - self._settled)
        state = [one for one in tensors_in(dict(optimizer.state)) if one.device == self._device]
        return Reading(
            state=sum(one.numel() * one.element_size() for one in state),
            growth=max(0, growth),
            held=min(after, self._settled),
            left=max(0, after - before),
            step_seconds=min(step_seconds),
            optimizer_seconds=min(optimizer_seconds),
            steps=len(step_seconds),
        )

    def _step_by(self, plan: _OneChoice) -> PlannedStep:
        subject = self._subject
        return PlannedStep(subject.model, subject.loss_fn, plan, batch_first=subject.pattern.batch_first)

    def _held(self) -> int:
        if not self._on_gpu:
            return held()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(self._device)

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


class _OneChoice:
    """A plan for batches of one size."""

    def __init__(self, choice: Choice, precision: str) -> None:
        self.choices = (choice,)
        self.precision = precision


def _answer(probe: Probe, told: dict[str, Any]) -> dict[str, Any]:
    trial = Trial(**{**told, "choice": Choice(**told["choice"])})
    try:
        return {"reading": asdict(probe.run(trial))}
    except LowtideError as error:
        probe._subject.optimizer.zero_grad(set_to_none=True)  # noqa: SLF001 - of this module
        return {"refused": {"what": error.what, "why": error.why, "fix": error.fix}}
    except (torch.OutOfMemoryError, MemoryError) as error:
        os.write(2, f"{error}\n".encode())
        os._exit(OVER)


def _own_output() -> TextIO:
    """What was the standard output, kept for answers alone."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _volunteer() -> None:
    """Have the kernel take this process before any other where memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _stop_above(allowed: int) -> None:
    """End this process when it holds more than it may."""

    def look() -> None:
        while True:
            now = read_status()
            if now.unreclaimable + now.kernel > allowed:
                os._exit(OVER)
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=look, daemon=True).start()


def _import_all(modules: list[str]) -> None:
    """What the asking process has imported is not part of what training adds there."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def _let_go() -> None:
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:  # noqa: BLE001 - told to whoever asked; what libraries say when they unload would hide it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
