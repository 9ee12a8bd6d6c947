"""From a handful of probes to models of bytes and seconds, one pair for each way of running.

The first trial is tiny. By what it took, the next are made as large as takes about `_STEP_SECONDS` a step: large
enough to be told from noise, small enough to be over soon. Each way of running is tried at three sizes, so that what a
sequence takes, what a step of one takes, and what neither changes can be told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from lowtide.errors import LowtideError
from lowtide.planning.manner import Manner
from lowtide.planning.models import ByteModel, TimeModel
from lowtide.planning.probe import Prober, TooLarge
from lowtide.planning.search import Models
from lowtide.planning.trial import Reading, Trial
from lowtide.planning.workload import Workload
from lowtide.step.choice import Choice

_STEP_SECONDS = 0.06
_LONG_STEP_SECONDS = 0.2
"""Up to which probes are made larger until they are told from noise: until they take `_TOLD_BYTES` more."""
_TOLD_BYTES = 24 << 20
_FIRST_ROWS = 4
_FIRST_STEPS = 16
_LEAST_STEPS = 8
_WORTH_COUNTING = 200_000
"""Bytes kept for a shape: oneDNN's products in bfloat16 keep a megabyte, others nothing that matters."""
_TIMED_SECONDS = 0.3
"""Of a micro-batch of a finalist, about."""
_MOST_TIMED_SECONDS = 2.0
_PROBED_CHUNK = 32
"""Steps of the chunks of probed streams: the models tell what longer ones take."""
_MICRO_BATCHES = 2
"""Of a probed step: gradients of the first are there while the second runs."""
_MOST_ROWS = 64


class Calibration:
    """Probes ways of running, and keeps what is known."""

    def __init__(self, prober: Prober, workload: Workload, *, may_cut_time: bool, foreach: bool | None = None) -> None:
        """Nothing is known yet.

        Args:
            prober: Runs trials.
            workload: What is trained on.
            may_cut_time: Whether the model runs on fewer steps than the data have.
            foreach: Whether the optimizer works on all parameters at once; None: as it is set.
        """
        self.foreach = foreach
        self.models: dict[Manner, Models] = {}
        self.refused: dict[Manner, LowtideError] = {}
        """Ways of running that the step refused, and why."""
        self.left_behind: list[int] = []
        """Bytes that each trial but the first left behind."""
        self.optimizer_seconds = 0.0
        self.state_bytes = 0
        self.held_bytes = 0
        """By training between two steps."""
        self._prober = prober
        self._workload = workload
        self._may_cut_time = may_cut_time
        self._streams: Models | None = None
        self._sizes: tuple[int, int] | None = None
        self._tried: dict[Choice, Reading] = {}
        self._timed: set[tuple[Manner, int]] = set()
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the first probe was asked for."""
        return time.monotonic() - self._begun

    @property
    def shape_bytes(self) -> int:
        """What libraries keep for each shape that they have seen, where that is worth counting."""
        usual = int(np.median(self.left_behind)) if self.left_behind else 0
        return usual if usual > _WORTH_COUNTING else 0

    def learn(self, manners: Iterable[Manner]) -> None:
        """Probe ways of running that are not known yet.

        Raises:
            TooLarge: Even the smallest trial is more than a probe may hold.
            LowtideError: The model runs in none of these ways.
        """
        for manner in manners:
            if manner in self.models or manner in self.refused:
                continue
            try:
                self.models[manner] = self._learn_stream(manner) if manner.chunk_steps else self._learn_whole(manner)
            except LowtideError as error:
                self.refused[manner] = error
        if not self.models:
            raise next(iter(self.refused.values()))

    def trial(self, choice: Choice, *, repeats: int = 4, proof: bool = False) -> Reading:
        """Run a micro-batch twice a step, and let the models learn from it.

        Raises:
            TooLarge: It took more than a probe may hold.
        """
        workload = self._workload
        rows = min(workload.batch_size, _MICRO_BATCHES * choice.rows)
        reading = self._prober.run(Trial(choice, rows, repeats, anew=proof, foreach=self.foreach))
        batch = workload.batch_bytes(rows, choice.steps)
        manner = Manner.of(choice)
        known = self.models.get(manner) or self._models_of(manner)
        known.bytes.add(choice, reading.growth - batch, proof=proof)
        known.seconds.add(choice, reading.step_seconds / -(-rows // choice.rows), proof=proof)
        self.optimizer_seconds = reading.optimizer_seconds
        self.state_bytes = max(self.state_bytes, reading.state)
        self.held_bytes = max(self.held_bytes, reading.held)
        self.left_behind.append(reading.left)
        return reading

    def timed(self, choice: Choice) -> bool:
        """Whether a choice was timed near its size."""
        return (Manner.of(choice), choice.rows) in self._timed

    def time(self, choice: Choice, *, room: float) -> bool:
        """Time a choice, on fewer steps where all take long; False where there is no room or no time for it."""
        models = self.models[Manner.of(choice)]
        run = choice
        least = 3 * (choice.chunk_steps or _LEAST_STEPS)
        while self._may_cut_time and models.seconds.predict(run) > _TIMED_SECONDS and run.steps // 2 >= least:
            run = replace(run, steps=run.steps // 2)
        batch = self._workload.batch_bytes(_MICRO_BATCHES * run.rows, run.steps)
        if models.bytes.predict(run) + batch > room or models.seconds.predict(run) > _MOST_TIMED_SECONDS:
            return False
        self._timed.add((Manner.of(choice), choice.rows))
        try:
            self.trial(run, repeats=3, proof=True)
        except TooLarge:
            return False
        return True

    def _models_of(self, manner: Manner) -> Models:
        if manner.chunk_steps is not None:
            if self._streams is None:
                self._streams = Models(ByteModel(), TimeModel())
            self.models[manner] = self._streams
        else:
            self.models[manner] = Models(ByteModel(), TimeModel())
        return self.models[manner]

    def _learn_whole(self, manner: Manner) -> Models:
        rows, steps = self._size(manner)
        sizes = [(rows, steps), (max(1, rows // 4), steps)]
        if self._may_cut_time and steps > _LEAST_STEPS:
            sizes += [(rows, max(_LEAST_STEPS, steps // 3)), (1, min(self._workload.longest, 2 * steps))]
        for size_rows, size_steps in dict.fromkeys(sizes):
            self._smaller_until_it_fits(manner.choice(size_steps, size_rows))
        return self.models[manner]

    def _learn_stream(self, manner: Manner) -> Models:
        known = next((error for other, error in self.refused.items() if other.chunk_steps is not None), None)
        if known is not None:  # what forbids chunks of one length forbids others
            raise known
        if self._streams is None:
            rows, _ = self._size(manner)
            probed = Manner(manner.keep, _PROBED_CHUNK)
            few, many = 3 * _PROBED_CHUNK, 8 * _PROBED_CHUNK
            for choice in (
                probed.choice(few, rows),
                probed.choice(few, max(1, rows // 4)),
                probed.choice(few, rows, keep_chunks=3),
                probed.choice(many, rows),
            ):
                self._smaller_until_it_fits(choice)
        assert self._streams is not None
        return self._streams

    def _size(self, manner: Manner) -> tuple[int, int]:
        """Rows and steps that take about as long as a probe shall."""
        if self._sizes is not None:
            return self._sizes
        workload = self._workload
        most_rows = min(_MOST_ROWS, max(1, workload.batch_size // _MICRO_BATCHES))
        steps = min(workload.longest, _FIRST_STEPS) if self._may_cut_time else workload.longest
        rows = min(most_rows, _FIRST_ROWS)
        first = last = self._smaller_until_it_fits(manner.choice(steps, rows))
        while last.step_seconds < _STEP_SECONDS or (
            last.growth - first.growth < _TOLD_BYTES and last.step_seconds < _LONG_STEP_SECONDS
        ):
            times = max(2, min(4, int(_LONG_STEP_SECONDS / last.step_seconds)))
            larger_rows = min(most_rows, times * rows)
            larger_steps = min(workload.longest, times * steps) if self._may_cut_time and larger_rows == rows else steps
            if (larger_rows, larger_steps) == (rows, steps):
                break
            rows, steps = larger_rows, larger_steps
            try:
                last = self._tried[manner.choice(steps, rows)] = self.trial(manner.choice(steps, rows))
            except TooLarge:
                rows, steps = max(1, rows // times), max(_LEAST_STEPS, steps // times) if self._may_cut_time else steps
                break
        self._sizes = rows, steps
        return self._sizes

    def _smaller_until_it_fits(self, choice: Choice) -> Reading:
        while True:
            if choice in self._tried:
                return self._tried[choice]
            try:
                self._tried[choice] = self.trial(choice)
                return self._tried[choice]
            except TooLarge:
                smaller = replace(choice, rows=max(1, choice.rows // 4))
                if smaller == choice and self._may_cut_time and choice.chunk_steps is None:
                    smaller = replace(choice, steps=max(_LEAST_STEPS, choice.steps // 4))
                if smaller == choice:
                    raise
                choice = smaller
