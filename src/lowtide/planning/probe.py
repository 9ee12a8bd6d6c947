"""The parent's side of a probe: a child process that is asked for one trial after another, and may die without harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from lowtide.errors import LowtideError
from lowtide.memory.scratch import why_no_scratch
from lowtide.planning.subject import Factory, Subject, write_subject
from lowtide.planning.torch_settings import torch_settings
from lowtide.planning.trial import OVER, Reading, Trial

_IMPORTED = {"torch"}
"""Packages of which a child imports all modules that are imported here."""
_KILLED = -9
_SHOWN = 2000
"""Characters of a child's last words that are shown."""


class TooLarge(Exception):  # noqa: N818 - an answer rather than a mistake
    """The trial took more memory than the child may hold."""


class Prober:
    """Runs trials in a child, which is made when the first is asked for and again after one has died."""

    def __init__(self, subject: Subject, allowed: int, *, settled: bool, factory: Factory | None = None) -> None:
        """Write down what the child needs.

        Args:
            subject: What is probed.
            allowed: Bytes that the child may hold, its interpreter and libraries included.
            settled: Whether the allocator is settled, as it is here.
            factory: Makes the subject where it cannot be pickled.
        """
        parameters = [*subject.model.parameters(), *subject.model.buffers()]
        size = 4 * sum(one.numel() * one.element_size() for one in parameters)
        self._folder = tempfile.TemporaryDirectory(prefix="lowtide-plan-", dir=_place_for(size))
        self._child: subprocess.Popen[str] | None = None
        self.base = 0
        """What the child held before its first step."""
        self.trials = 0
        limits = {
            "bytes": allowed,
            "threads": torch.get_num_threads(),
            "settled": settled,
            "torch": torch_settings(),
            "modules": sorted(name for name in sys.modules if name.partition(".")[0] in _IMPORTED),
        }
        (Path(self._folder.name) / "limits.json").write_text(json.dumps(limits), encoding="utf-8")
        try:
            write_subject(subject, Path(self._folder.name) / "subject.pt", factory=factory)
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def start(self) -> int:
        """Have a child ready, and say what it holds."""
        if self._child is None:
            errors = (Path(self._folder.name) / "errors.txt").open("w", encoding="utf-8")
            with errors:
                self._child = subprocess.Popen(  # noqa: S603 - this interpreter, on a folder made here
                    [sys.executable, "-P", "-m", "lowtide.planning._child", self._folder.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(place or str(Path.cwd()) for place in sys.path)},
                )
            self.base = int(self._read()["ready"])
        return self.base

    def run(self, trial: Trial) -> Reading:
        """Run a trial.

        Raises:
            TooLarge: It took more memory than the child may hold.
            LowtideError: The step refused to run so, or failed.
        """
        self.start()
        assert self._child is not None
        assert self._child.stdin is not None
        self.trials += 1
        try:
            self._child.stdin.write(json.dumps(asdict(trial)) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # its end is read below
        answer = self._read()
        if "refused" in answer:
            raise LowtideError(**answer["refused"])
        return Reading(**answer["reading"])

    def _read(self) -> Any:  # noqa: ANN401 - JSON
        assert self._child is not None
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if line:
            return json.loads(line)
        status = self._child.wait()
        self._child = None
        if status in (OVER, _KILLED):
            raise TooLarge
        words = (Path(self._folder.name) / "errors.txt").read_text(encoding="utf-8", errors="replace")[-_SHOWN:]
        raise LowtideError(
            what=f"a training step failed in the process that measures it (exit status {status}):\n{words}",
            why="what cannot run a few steps on a batch like the sample cannot be planned",
            fix="run one step by hand on the same batch; if the model cannot be made there, pass factory=",
        )

    def _end(self) -> None:
        if self._child is None:
            return
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.kill()
        self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait()
        self._child = None


def _place_for(size: int) -> str | None:
    """A folder on a disk with room for what a child is given; the system's own where none is: it may lie in RAM."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]  # noqa: S108 - a folder is made in it
    found = next((place for place in places if why_no_scratch(size, place) is None), None)
    return None if found is None else str(found)
