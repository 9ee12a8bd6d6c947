"""What is probed: model, loss and optimizer, handed to a child process through a file.

By cloudpickle, so that lambdas, models defined in a notebook or in a script's `__main__`, and scripts without a guard
work: the child never runs the user's main. Tensors go into the file one by one and never twice into memory.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide.errors import LowtideError, MissingExtraError
from lowtide.planning.pattern import Pattern

Factory = Callable[[], tuple[nn.Module, Any, Optimizer]]
"""Makes model, loss and optimizer anew: for those that cannot be pickled."""


@dataclass(frozen=True)
class Subject:
    """What training consists of."""

    model: nn.Module
    loss_fn: Any
    optimizer: Optimizer
    pattern: Pattern
    precision: str


def write_subject(subject: Subject, path: Path, *, factory: Factory | None = None) -> None:
    """Write everything to a file.

    Raises:
        LowtideError: Something cannot be pickled, and no factory was given.
    """
    content: dict[str, Any] = {"pattern": subject.pattern, "precision": subject.precision}
    if factory is None:
        content |= {"model": subject.model, "loss_fn": subject.loss_fn, "optimizer": subject.optimizer}
    else:
        content["factory"] = factory
    try:
        torch.save(content, path, pickle_module=_cloudpickle())
    except (pickle.PicklingError, TypeError, ValueError, AttributeError, RuntimeError, NotImplementedError) as error:
        raise LowtideError(
            what=f"the model, loss or optimizer cannot be handed to a child process: {error}",
            why="what training takes is measured in a process of its own, which may die without harm",
            fix="pass factory=, a function without arguments that returns (model, loss_fn, optimizer) made anew",
        ) from error


def read_subject(path: Path) -> Subject:
    """What was written; only for a file that this user's own process has just made."""
    content = torch.load(path, weights_only=False, pickle_module=pickle)
    if "factory" in content:
        content["model"], content["loss_fn"], content["optimizer"] = content.pop("factory")()
    return Subject(**content)


def _cloudpickle() -> ModuleType:
    try:
        return importlib.import_module("cloudpickle")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            what="planning needs the package 'cloudpickle', which is not installed",
            why="models and losses that are defined in a script or a notebook reach a child process by it alone",
            fix='pip install "lowtide[torch]"',
        ) from error
