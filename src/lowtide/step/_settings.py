"""How a stream runs, whatever the batch: what is given when a step is made, checked there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from lowtide.errors import LowtideError
from lowtide.memory.scratch import map_scratch
from lowtide.step._boundaries import Place


@dataclass(frozen=True)
class Settings:
    """The numbers of chunks and steps, and where states lie between passes."""

    chunk_steps: int
    keep_chunks: int
    window_steps: int | None
    place: Place
    folder: Path | None

    def __post_init__(self) -> None:
        """Refuse what means nothing, and a disk that is none."""
        _check_count("chunk_steps", self.chunk_steps, least=1)
        _check_count("keep_chunks", self.keep_chunks, least=0)
        if self.window_steps is not None:
            _check_count("window_steps", self.window_steps, least=1)
        if self.place not in {"memory", "disk", "auto"}:
            raise LowtideError(
                what=f"boundaries={self.place!r} is no place for boundary states",
                why="the states between chunks lie in memory or on disk until the second pass",
                fix='give "memory", "disk" or "auto"',
            )
        if self.place == "disk":
            map_scratch(1, self.folder or Path(gettempdir())).close()


def _check_count(name: str, value: int, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise LowtideError(
            what=f"{name}={value!r}",
            why="it counts time steps or chunks",
            fix=f"give a whole number of at least {least}",
        )
