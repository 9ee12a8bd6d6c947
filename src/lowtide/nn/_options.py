"""What a lean layer can be told beyond its stock parent: how much it keeps, and in which chunks it works."""

from __future__ import annotations

from lowtide.errors import LowtideError
from lowtide.ops.spec import KEEPS, Keep

OPTION_NAMES = ("keep", "chunk_steps", "state_steps")


def checked_keep(keep: str) -> Keep:
    """Return `keep` if it names a keep mode."""
    for known in KEEPS:
        if keep == known:
            return known
    raise LowtideError(
        what=f"keep={keep!r} is no keep mode.",
        why="It says what survives the forward pass: every gate, each layer's output, or the states between chunks.",
        fix=f"Choose one of {', '.join(map(repr, KEEPS))}.",
    )


def check_steps(chunk_steps: int, state_steps: int) -> None:
    """Refuse chunk lengths that no stack can be cut into."""
    for name, steps in (("chunk_steps", chunk_steps), ("state_steps", state_steps)):
        if type(steps) is not int or steps < 0:
            raise LowtideError(
                what=f"{name}={steps!r} is no number of time steps.",
                why="The backward pass cuts the sequence into chunks of whole steps.",
                fix="Give a whole number of steps, or 0 to leave the choice to Lowtide.",
            )
    if 0 < state_steps < chunk_steps:
        raise LowtideError(
            what=f"state_steps={state_steps} is smaller than chunk_steps={chunk_steps}.",
            why="States are kept where chunks begin, so they cannot be kept more often than chunks begin.",
            fix=f"Give state_steps of at least {chunk_steps}, or 0 for one state a chunk.",
        )
