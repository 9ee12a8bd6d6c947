"""A thread that looks at memory every few milliseconds while a block runs, and costs well below 1 % of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lowtide.memory.pace import SHARE

SHORTEST_PAUSE = 0.005
"""Seconds between two looks, at the least."""


class Sampler:
    """Calls a function now and then, from `start` to `stop`."""

    _running = 0
    """Samplers in this process: they share what one may cost."""
    _lock = threading.Lock()

    def __init__(self, look: Callable[[], None]) -> None:
        """Keep what is to be called."""
        self._look = look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lowtide-memory", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin to look."""
        with Sampler._lock:
            Sampler._running += 1
        self._thread.start()

    def stop(self) -> None:
        """End, after the look that may be under way; raise what a look raised."""
        self._stopped.set()
        self._thread.join()
        with Sampler._lock:
            Sampler._running -= 1
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        pause = SHORTEST_PAUSE
        try:
            while not self._stopped.wait(pause * Sampler._running):
                start = time.thread_time()
                self._look()
                pause = max(SHORTEST_PAUSE, SHARE * (time.thread_time() - start))
        except BaseException as failure:  # noqa: BLE001 - raised by `stop`, in the thread that waits for the figures
            self._failure = failure
