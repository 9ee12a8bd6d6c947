"""One contestant of a contest, in a process of its own inside the limit: it makes itself ready, and trains.

All train stock or lean layers of the same sizes on batches of the same sequences, those of like lengths together (which
is kind to whoever pads). Only the plan's are lean; what is asked of the others is what their manuals show. Making ready
(planning, or finding a batch size) is timed by itself, and what it changed is trained on.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import lowtide
from benchmarks.cgroups import enter
from benchmarks.plan_case import Case
from benchmarks.plan_rivals import EPOCHS, PLAN
from lowtide.memory import watch

_SAME: dict[str, Any] = {"number": 0, "cell": "LSTM", "optimizer": "Adam", "precision": "float32", "room": 1.0}
"""Of all contests."""
_FIRST_SIZE = 2
"""From which Lightning's finder goes up."""
Report = dict[str, Any]


def run_rival(contest: Mapping[str, Any], contestant: str, group: str | None) -> Report:
    """Have a contestant train, and say how fast."""
    if group is not None:
        enter(Path(group))
    case = case_of(contest["case"], lean=contestant == PLAN)
    contestants: dict[str, Callable[[Case, int], Report]] = {
        PLAN: _plan,
        "stock": _stock,
        "accelerate": _accelerate,
        "lightning": _lightning,
    }
    return contestants[contestant](case, contest["limit"])


def case_of(told: Mapping[str, Any], *, lean: bool) -> Case:
    """A contest's task, with lean layers or stock ones."""
    return Case(**_SAME, lean=lean, **told)


def batches_of(case: Case, batch_size: int) -> list[tuple[int, int]]:
    """Rows and padded steps of an epoch's batches, in random order."""
    lengths = np.sort(case.sequence_lengths())
    starts = range(0, len(lengths), batch_size)
    sizes = [(len(part), int(part.max())) for part in (lengths[start : start + batch_size] for start in starts)]
    order = np.random.default_rng(case.number).permutation(len(sizes))
    return [sizes[place] for place in order]


def _made(case: Case, sizes: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    return (case.batch(*size, seed=seed) for seed, size in enumerate(sizes))


def _plan(case: Case, limit: int) -> Report:
    model = case.model()
    optimizer = case.make_optimizer(model)
    lengths = case.sequence_lengths()
    begun = time.monotonic()
    plan = lowtide.plan(
        model,
        case.loss(),
        optimizer=optimizer,
        sample=case.batch(4, 64, seed=0),
        lengths=lengths,
        batch_size=case.batch_size,
        budget=limit,
    )
    plan.prepare(optimizer)
    step = lowtide.PlannedStep(model, case.loss(), plan)
    ready = time.monotonic() - begun
    return {**_trained(case, case.batch_size, optimizer, step), "ready_seconds": ready}


def _stock(case: Case, _: int) -> Report:
    model = case.model()
    optimizer = case.make_optimizer(model)
    return {**_trained(case, case.batch_size, optimizer, _backward(case, model)), "ready_seconds": 0.0}


def _accelerate(case: Case, _: int) -> Report:
    """As its manual shows: all of training is what is tried, from the batch size that the user wants downwards."""
    from accelerate.utils import find_executable_batch_size  # noqa: PLC0415 - others do without

    begun = time.monotonic()

    def train(batch_size: int) -> Report:
        started = time.monotonic()
        model = case.model()
        optimizer = case.make_optimizer(model)
        found = _trained(case, batch_size, optimizer, _backward(case, model))
        return {**found, "ready_seconds": started - begun}

    try:
        found: Report = find_executable_batch_size(train, starting_batch_size=case.batch_size)()
    except RuntimeError as error:
        return {"error": str(error)}
    return found


def _lightning(case: Case, _: int) -> Report:
    """As its manual shows: doubled from 2 while it goes well, and no further than the user wants."""
    import pytorch_lightning as lightning  # noqa: PLC0415 - others do without
    from pytorch_lightning.tuner.tuning import Tuner  # noqa: PLC0415

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = case.model()
            self.loss = _mean_loss(case)
            self.batch_size = _FIRST_SIZE
            self.epochs_begun: list[float] = []

        def on_train_epoch_start(self) -> None:
            self.epochs_begun.append(time.monotonic())

        def training_step(self, batch: dict[str, Any], _: int) -> Tensor:
            return self.loss(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return case.make_optimizer(self.model)

        def train_dataloader(self) -> Any:  # noqa: ANN401 - a DataLoader of batches made here
            sizes = batches_of(case, self.batch_size)
            return torch.utils.data.DataLoader(_Made(case, sizes), batch_size=None, sampler=range(len(sizes)))

    with tempfile.TemporaryDirectory(prefix="lowtide-rival-") as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=EPOCHS,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        module = Module()
        begun = time.monotonic()
        try:
            Tuner(trainer).scale_batch_size(module, mode="power", init_val=_FIRST_SIZE, max_val=case.batch_size)
            ready = time.monotonic() - begun
            with watch() as peak:
                trainer.fit(module)
        except RuntimeError as error:
            return {"error": str(error)}
        seconds = time.monotonic() - module.epochs_begun[-1]
    valid = sum(valid_steps(batch) for batch in _made(case, batches_of(case, module.batch_size)))
    return {"rate": valid / seconds, "batch_size": module.batch_size, "peak": peak.bytes, "ready_seconds": ready}


class _Made(torch.utils.data.Dataset[dict[str, Any]]):
    """Batches, made when they are asked for; but as long as there are sequences, which bounds what a finder tries."""

    def __init__(self, case: Case, sizes: list[tuple[int, int]]) -> None:
        self._case, self._sizes = case, sizes

    def __len__(self) -> int:
        return sum(rows for rows, _ in self._sizes)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self._case.batch(*self._sizes[place], seed=place)


def _trained(
    case: Case, batch_size: int, optimizer: torch.optim.Optimizer, step: Callable[[dict[str, Any]], object]
) -> Report:
    """Train for some epochs; the last is timed."""
    with watch() as peak:
        for _ in range(EPOCHS):
            valid = 0
            begun = time.monotonic()
            for batch in _made(case, batches_of(case, batch_size)):
                step(batch)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                valid += valid_steps(batch)
            seconds = time.monotonic() - begun
    return {"rate": valid / seconds, "batch_size": batch_size, "peak": peak.bytes}


def valid_steps(batch: Mapping[str, Any]) -> int:
    """Steps of a batch that are no padding."""
    if "lengths" in batch:
        return int(batch["lengths"].sum())
    rows, steps = batch["inputs"].shape[:2]
    return int(rows * steps)


def _backward(case: Case, model: torch.nn.Module) -> Callable[[dict[str, Any]], object]:
    loss = _mean_loss(case)
    return lambda batch: loss(model, batch).backward()  # type: ignore[no-untyped-call] # torch's


def _mean_loss(case: Case) -> Callable[[torch.nn.Module, dict[str, Any]], Tensor]:
    """The loss of a padded batch as plain training has it: padding does not count where there is one output a step."""
    loss_fn = case.loss()

    def loss(model: torch.nn.Module, batch: dict[str, Any]) -> Tensor:
        lengths = batch.get("lengths")
        values: Tensor = loss_fn(model(batch["inputs"], lengths), batch["targets"])
        if lengths is None or case.head == "pooled":
            return values.mean()
        valid = torch.arange(values.shape[1]) < lengths[:, None]
        return values[valid].mean()

    return loss
