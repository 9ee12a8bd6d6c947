"""One batch in the forms that loops hand it over in: a Batch, a tuple as of a DataLoader, or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.nn.utils.rnn import PackedSequence

from lowtide.data.batch import Batch
from lowtide.errors import LowtideError
from lowtide.step._sequence import Data, leaves

_NAMES = ("inputs", "targets", "lengths", "weight")
_NEEDED = 2
_FORMS = "a lowtide.data.Batch, (inputs, targets[, lengths[, weight]]), or a mapping with these names"


@dataclass(frozen=True)
class Given:
    """The parts of a batch, not looked at yet."""

    inputs: Data
    targets: Data
    lengths: Any = None
    weight: Any = None
    static: Data = None
    batch_first: bool | None = None
    """None: not told."""
    size: tuple[int, int] | None = None
    """Steps and sequences, where the batch tells."""
    fixed: frozenset[int] = frozenset()
    """Where the size is told: which parts of the inputs, counted, have no time."""
    targets_have_steps: bool = True
    """Where the size is told: whether the targets are one for each step."""


def read_form(batch: object) -> Given:
    """The parts of a batch.

    Raises:
        LowtideError: It is none, is packed, or its rows go on from the batch before.
    """
    given = _of_batch(batch) if isinstance(batch, Batch) else Given(**dict(zip(_NAMES, _parts(batch), strict=False)))
    if any(isinstance(leaf, PackedSequence) for leaf in [*leaves(given.inputs), *leaves(given.targets)]):
        raise _packed()
    if any(leaf is None for leaf in [*leaves(given.inputs), *leaves(given.targets)]):
        raise LowtideError(
            what="the batch has no inputs or no targets",
            why="the loss compares what the model makes of the inputs with the targets",
            fix="give both; a model that learns its own inputs takes them as targets",
        )
    return given


def _of_batch(batch: Batch) -> Given:
    if batch.begins is not None:
        raise LowtideError(
            what="the rows of the batch go on from those of the batch before",
            why="a planned step runs each row as a sequence of its own",
            fix="use lowtide.StreamStep(..., stateful=True) with such lanes, or batches of whole sequences",
        )
    told = batch.steps > 0 and bool(batch.per_step)
    names = _names("inputs", batch.inputs)
    return Given(
        batch.inputs,
        batch.targets,
        batch.lengths,
        batch.weight,
        static=batch.static,
        batch_first=batch.batch_first,
        size=(batch.steps, batch.size) if told else None,
        fixed=frozenset(number for number, name in enumerate(names) if name not in batch.per_step),
        targets_have_steps=all(name in batch.per_step for name in _names("targets", batch.targets)),
    )


def _names(name: str, part: Data) -> list[str]:
    return [f"{name}/{key}" for key in part] if isinstance(part, Mapping) else [name]


def _parts(batch: object) -> tuple[Any, ...]:
    if isinstance(batch, PackedSequence):
        raise _packed()
    if isinstance(batch, Mapping) and set(_NAMES[:_NEEDED]) <= set(batch) <= set(_NAMES):
        return tuple(batch.get(name) for name in _NAMES)
    if isinstance(batch, (tuple, list)) and _NEEDED <= len(batch) <= len(_NAMES):
        return tuple(batch)
    raise LowtideError(what=f"the batch is {_told(batch)}", why=f"a step takes {_FORMS}", fix="bring it into that form")


def _told(batch: object) -> str:
    if isinstance(batch, Mapping):
        return f"a mapping with the names {sorted(map(str, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)} parts"
    return f"a {type(batch).__name__}"


def _packed() -> LowtideError:
    return LowtideError(
        what="the batch holds a PackedSequence",
        why="its steps lie in the order of time over all sequences, and cannot be cut into micro-batches",
        fix="give padded data with their lengths: torch.nn.utils.rnn.pad_packed_sequence(packed) gives both, and a "
        "loader without packed=True",
    )
