"""Who takes part in a measurement: the stock layer, or the lean layer in one of its keep modes. Loads no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Keep = Literal["gates", "outputs", "boundaries"]


@dataclass(frozen=True)
class Contestant:
    """A layer and the threads that it runs on."""

    keep: Keep | None = None
    """What the lean layer keeps; None for torch's own layer."""
    threads: int = 0
    """Threads to run on; 0 for as many as torch takes by itself."""


STOCK = Contestant()
GATES = Contestant("gates")
OUTPUTS = Contestant("outputs")
BOUNDARIES = Contestant("boundaries")
