"""One thread that makes things ahead of their use, no more of them at a time than fit into a number of bytes.

The thread waits for room before it makes the next one, and what is in the making counts: what is held never exceeds the
limit, or one thing where that alone is larger, but by what the last thing turns out to be larger than expected. It
ends when all is made, when the ring is closed or dropped, and at the interpreter's exit; it never outlives the ring.
What goes wrong in it is raised where the next thing is asked for. A fork of the process has no such thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from lowtide.errors import LowtideError

T = TypeVar("T")


@dataclass(frozen=True)
class Job(Generic[T]):
    """One thing to be made."""

    size: int
    """Bytes that it will have, as far as can be told beforehand."""
    make: Callable[[], T]
    measure: Callable[[T], int] | None = None
    """Tells the bytes that it has; None: those that were expected."""


class Ring(Generic[T]):
    """Iterates over what jobs make, in their order."""

    def __init__(self, jobs: Iterator[Job[T]], limit: int) -> None:
        """Start the thread.

        Args:
            jobs: What to make; advanced in the thread alone.
            limit: Bytes that may be held.
        """
        self._shared: _Shared[T] = _Shared(limit)
        # The thread knows what it shares with the ring, never the ring: so the ring can be dropped while it runs.
        thread = threading.Thread(target=_fill, args=(self._shared, jobs), name="lowtide-ring", daemon=True)
        # Also called at exit, before daemons are frozen where they stand.
        self._close = weakref.finalize(self, _stop, self._shared, thread, os.getpid())
        self._process = os.getpid()
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if os.getpid() != self._process:
            raise LowtideError(
                what="a loop that was begun in one process went on in a fork of it",
                why="the thread that makes what comes next is not in the fork",
                fix="begin the loop in the process that goes through it, or load with prefetch_bytes=0",
            )
        shared = self._shared
        with shared.changed:
            while not (shared.made or shared.ended):
                shared.changed.wait()
            if shared.made:
                size, thing = shared.made.popleft()
                shared.held -= size
                shared.changed.notify_all()
                return thing
            failure, shared.failure = shared.failure, None
        if failure is not None:
            raise failure
        raise StopIteration

    def close(self) -> None:
        """End the thread, and forget what it made."""
        self._close()

    @property
    def held_bytes(self) -> int:
        """Bytes of what is made and not taken, or in the making."""
        return self._shared.held


@dataclass
class _Shared(Generic[T]):
    """What both threads see, under the lock of `changed`."""

    limit: int
    made: deque[tuple[int, T]] = field(default_factory=deque)
    held: int = 0
    stopped: bool = False
    """Nobody will take any more."""
    ended: bool = False
    """Nothing more will be made."""
    failure: BaseException | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def await_room(self, size: int) -> bool:
        """Wait until there is room, and take it; say whether anybody still waits for it."""
        with self.changed:
            while self.held and self.held + size > self.limit and not self.stopped:
                self.changed.wait()
            self.held += 0 if self.stopped else size
            return not self.stopped

    def add(self, job: Job[T]) -> None:
        """Make a thing that there is room for."""
        thing = job.make()
        size = job.size if job.measure is None else job.measure(thing)
        with self.changed:
            if not self.stopped:
                self.held += size - job.size
                self.made.append((size, thing))
                self.changed.notify_all()

    def end(self, failure: BaseException | None) -> None:
        with self.changed:
            self.ended = True
            self.failure = failure
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = self.ended = True
            self.made.clear()
            self.held = 0
            self.changed.notify_all()


def _fill(shared: _Shared[T], jobs: Iterator[Job[T]]) -> None:
    try:
        for job in jobs:
            if not shared.await_room(job.size):
                return
            shared.add(job)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the caller's, who waits for it
        shared.end(error)
    else:
        shared.end(None)


def _stop(shared: _Shared[T], thread: threading.Thread, process: int) -> None:
    if os.getpid() != process:
        return  # a fork has no thread to end, and the lock as it was at that moment
    shared.stop()
    # The garbage collector may drop a ring in any thread, also in its own.
    if thread is not threading.current_thread():
        thread.join()
