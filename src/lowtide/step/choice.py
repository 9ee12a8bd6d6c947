"""How batches are run, as a plan says it: rows at once, what layers keep, whole sequences or chunks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep


@dataclass(frozen=True)
class Choice:
    """How batches up to a padded length are run."""

    steps: int
    """For batches of at most so many padded steps."""
    rows: int
    """Sequences of one micro-batch, at most."""
    keep: Keep | None
    """What lean layers keep for the backward pass; None: as the layers say. A stream's keep the gates of a chunk."""
    chunk_steps: int | None = None
    """Steps of the chunks that sequences are streamed in; None: whole sequences at once."""
    keep_chunks: int = 0
    """Of a stream: chunks at the end whose graphs are kept."""

    def __post_init__(self) -> None:
        """Refuse numbers that no batch could be run by.

        Raises:
            LowtideError: A count is none, or there is no such way of keeping.
        """
        _check_count("steps", self.steps)
        _check_count("rows", self.rows)
        if self.chunk_steps is not None:
            _check_count("chunk_steps", self.chunk_steps)
        _check_count("keep_chunks", self.keep_chunks, least=0)
        if self.keep is not None and self.keep not in KEEPS:
            raise LowtideError(
                what=f"keep={self.keep!r}",
                why="it says what lean layers keep for the backward pass",
                fix=f"give one of {', '.join(map(repr, KEEPS))}, or None for what the layers say",
            )


class StepPlan(Protocol):
    """What of a plan a step needs."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How batches are run, ascending in steps."""

    @property
    def precision(self) -> str:
        """What a forward computes in: "float32", which is whatever the parameters are of, or "bfloat16"."""


def _check_count(name: str, value: int, *, least: int = 1) -> None:
    if type(value) is not int or value < least:
        raise LowtideError(
            what=f"{name}={value!r}",
            why="it counts time steps, sequences or chunks",
            fix=f"give a whole number of at least {least}",
        )
