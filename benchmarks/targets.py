"""What is measured, table by table, and what each figure must reach on a machine with two AVX-512 cores.

The work comes from training as people do it: hidden sizes 64 to 1024, long and short batches, packed sequences. A
good part of stock torch's time is page faults of the default malloc, which gives large blocks back to the system after
each step; hence the table with raised thresholds, where neither side pays for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.contestant import BOUNDARIES, GATES, OUTPUTS, STOCK, Contestant
from benchmarks.work import Work

LSTM_256 = Work("LSTM", batch=32, steps=500, inputs=128, hidden=256)
LSTM_128 = Work("LSTM", batch=32, steps=1000, inputs=32, hidden=128)
LSTM_64 = Work("LSTM", batch=8, steps=2000, inputs=32, hidden=64)
LSTM_512 = Work("LSTM", batch=64, steps=500, inputs=64, hidden=512)
LSTM_1024 = Work("LSTM", batch=16, steps=500, inputs=64, hidden=1024)
LSTM_SINGLE = Work("LSTM", batch=1, steps=5000, inputs=32, hidden=64)
GRU_256 = Work("GRU", batch=32, steps=500, inputs=128, hidden=256)
GRU_64 = Work("GRU", batch=8, steps=2000, inputs=32, hidden=64)
GRU_512 = Work("GRU", batch=64, steps=500, inputs=64, hidden=512)
RNN_256 = Work("RNN tanh", batch=32, steps=500, inputs=128, hidden=256)
LSTM_PACKED = Work("LSTM", batch=32, steps=1000, shortest=800, inputs=128, hidden=256, layers=2)
GRU_PACKED = Work("GRU", batch=32, steps=400, shortest=200, inputs=128, hidden=256)

LSTM_WIDE_SINGLE = Work("LSTM", batch=1, steps=500, inputs=64, hidden=1024)
LSTM_LONG = Work("LSTM", batch=32, steps=4000, inputs=128, hidden=256, layers=2)
GRU_LONG = Work("GRU", batch=32, steps=4000, inputs=128, hidden=256, layers=2)

Wanted = Mapping[Contestant, float | None]
"""For each contender, how many times faster or smaller than the baseline it must be; None where nothing is asked."""


@dataclass(frozen=True)
class Race:
    """A baseline and its contenders at the same work."""

    work: Work
    baseline: Contestant
    wanted: Wanted
    slow_baseline: bool = False
    """Whether the baseline takes so long that it runs fewer steps, and none to warm up."""


@dataclass(frozen=True)
class Trial:
    """One table to be measured."""

    name: str
    """What --tables selects it by."""
    title: str
    measure: Literal["seconds", "growth"]
    races: tuple[Race, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the children."""
    sides: tuple[str, str] = ("stock", "lean")
    """What the baseline and the contenders are called."""
    with_growth: bool = False
    """Whether a table of seconds shows the growth of memory beside them."""


RAISED_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}
"""glibc's own names, with the underscore at their end."""


def _against_stock(work: Work, *, outputs: float | None = None, gates: float | None = None) -> Race:
    # Stock torch's packed LSTM takes time with the square of the steps: about a minute here.
    return Race(work, STOCK, {OUTPUTS: outputs, GATES: gates}, slow_baseline=work == LSTM_PACKED)


TIME = Trial(
    "time",
    "Forward + backward, default malloc",
    "seconds",
    (
        _against_stock(LSTM_256, outputs=1.4),
        _against_stock(LSTM_128, outputs=1.9),
        _against_stock(LSTM_64, outputs=1.8),
        _against_stock(LSTM_512, outputs=1.2),
        _against_stock(LSTM_1024, outputs=0.95, gates=1.2),
        _against_stock(LSTM_SINGLE, outputs=1.5),
        _against_stock(GRU_256, outputs=2.6),
        _against_stock(GRU_64, outputs=12),
        _against_stock(GRU_512, outputs=2.3),
        _against_stock(RNN_256, outputs=2.5),
        _against_stock(LSTM_PACKED, outputs=80),
        _against_stock(GRU_PACKED, outputs=9),
    ),
    with_growth=True,
)

RAISED = Trial(
    "raised",
    "Forward + backward, malloc thresholds raised for both (mmap 1 GiB, trim 4 GiB)",
    "seconds",
    (
        _against_stock(LSTM_256, outputs=0.85, gates=1.0),
        _against_stock(LSTM_128),
        _against_stock(LSTM_64),
        _against_stock(LSTM_512, outputs=0.78, gates=1.0),
        _against_stock(LSTM_1024, outputs=0.68, gates=1.0),
        _against_stock(LSTM_SINGLE),
        _against_stock(GRU_256),
        _against_stock(GRU_64),
        _against_stock(GRU_512),
        _against_stock(RNN_256),
        _against_stock(LSTM_PACKED, outputs=18),
        _against_stock(GRU_PACKED),
    ),
    settings=RAISED_THRESHOLDS,
)

AVX2 = Trial(
    "avx2",
    "Forward + backward, default malloc, lean kernels on AVX2 (stock as before)",
    "seconds",
    tuple(_against_stock(race.work, gates=1.0) for race in TIME.races),
    settings={"LOWTIDE_ISA": "avx2"},
)

THREADS = Trial(
    "threads",
    "Lean layer on one thread and on two",
    "seconds",
    (
        Race(LSTM_WIDE_SINGLE, Contestant("outputs", threads=1), {Contestant("outputs", threads=2): 1.7}),
        Race(LSTM_WIDE_SINGLE, Contestant("gates", threads=1), {Contestant("gates", threads=2): 1.7}),
    ),
    sides=("1 thread", "2 threads"),
)

MEMORY = Trial(
    "memory",
    "Growth of the peak over one forward + backward, default malloc",
    "growth",
    (
        Race(LSTM_LONG, STOCK, {OUTPUTS: 4.5, BOUNDARIES: 6.5, GATES: None}),
        Race(GRU_LONG, STOCK, {OUTPUTS: 4.5, BOUNDARIES: 6.5, GATES: None}),
    ),
)

TRIALS = {trial.name: trial for trial in (TIME, RAISED, AVX2, THREADS, MEMORY)}
