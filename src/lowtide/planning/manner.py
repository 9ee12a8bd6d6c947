"""How sequences run, whatever their number and length: what a choice is but for its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ops.spec import Keep
from lowtide.step.choice import Choice


@dataclass(frozen=True)
class Manner:
    """Whole sequences, or chunks of them."""

    keep: Keep | None
    """What lean layers keep of whole sequences; None: as the layers say, or there are none."""
    chunk_steps: int | None = None
    """Steps of a stream's chunks; None: whole sequences."""

    def choice(self, steps: int, rows: int, keep_chunks: int = 0) -> Choice:
        """This way of running, at a size."""
        return Choice(steps, rows, self.keep, self.chunk_steps, keep_chunks)

    @staticmethod
    def of(choice: Choice) -> Manner:
        """How a choice runs."""
        return Manner(choice.keep, choice.chunk_steps)

    def __str__(self) -> str:
        if self.chunk_steps is not None:
            return f"streamed by {self.chunk_steps} steps"
        return "whole" if self.keep is None else f"whole, keeping {self.keep}"


def live_steps(choice: Choice) -> int:
    """Steps whose graph exists at once."""
    if choice.chunk_steps is None:
        return choice.steps
    return min(choice.steps, choice.chunk_steps * max(1, choice.keep_chunks))


def chunks_of(choice: Choice) -> int:
    """Chunks that a sequence is run in."""
    return 1 if choice.chunk_steps is None else -(-choice.steps // choice.chunk_steps)
