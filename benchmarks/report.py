"""What was measured, as data, and how it is shown: tables in plain text, and JSON. Loads no framework."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

MEGABYTE = 1_000_000

Unit = Literal["ms", "MB"]


@dataclass(frozen=True)
class Machine:
    """Hardware and software of a run."""

    processor: str
    cores: int
    """Cores that this process may use."""
    threads: int
    """Threads that torch takes by itself, and the lean layers with it."""
    system: str
    python: str
    torch: str
    lowtide: str
    isa: str
    """The instruction set that the lean kernels choose."""
    team: str
    """Whose threads the lean kernels run on."""
    load: float
    """Runnable processes, mean of the minute before the run: beyond a few tenths, others were measured as well."""
    product_gflops: float
    """What torch.mm reaches on square float32 matrices: something to relate other figures to, and no bound."""


@dataclass(frozen=True)
class Measured:
    """One contestant's figures at one work."""

    values: tuple[float, ...]
    """Seconds of each step, or bytes."""
    growth: int | None = None
    """Bytes by which a step raises the peak of memory, where it was measured beside the seconds."""

    @property
    def best(self) -> float:
        """The smallest of the values."""
        return min(self.values)


@dataclass(frozen=True)
class Comparison:
    """One row: a baseline and a contender at the same work."""

    work: str
    keep: str
    """What the contender, a lean layer, keeps."""
    baseline: Measured
    contender: Measured
    wanted: float | None = None
    """The ratio to reach; None where nothing is asked."""

    @property
    def ratio(self) -> float:
        """How many times faster or smaller than the baseline the contender is, best against best."""
        return self.baseline.best / self.contender.best

    @property
    def reached(self) -> bool | None:
        """Whether the ratio is what was wanted, not rounded; None where nothing is asked."""
        return None if self.wanted is None else self.ratio >= self.wanted


@dataclass(frozen=True)
class Table:
    """Rows measured under the same conditions."""

    name: str
    title: str
    unit: Unit
    sides: tuple[str, str]
    """What the baseline and the contender are called."""
    settings: Mapping[str, str]
    """Environment variables that the measuring processes had."""
    rows: tuple[Comparison, ...]


@dataclass(frozen=True)
class Report:
    """One run."""

    machine: Machine
    tables: tuple[Table, ...]


def to_json(report: Report) -> str:
    """All figures, and the verdicts that follow from them."""
    tables: list[dict[str, Any]] = [
        {**asdict(table), "rows": [{**asdict(row), "ratio": row.ratio, "reached": row.reached} for row in table.rows]}
        for table in report.tables
    ]
    return json.dumps({"machine": asdict(report.machine), "tables": tables}, indent=2) + "\n"


def render_machine(machine: Machine) -> str:
    """A few lines on where the figures come from."""
    versions = f"Python {machine.python}, torch {machine.torch} on {machine.threads} threads"
    kernels = f"lowtide {machine.lowtide}, {machine.isa} kernels, threads: {machine.team}"
    return "\n".join(
        [
            f"{machine.processor}, {machine.cores} cores, {machine.system}",
            f"{versions}, {kernels}",
            f"matrix product here: {machine.product_gflops:.0f} GFLOP/s (torch.mm, float32, 2048 x 2048 x 2048)",
            f"load before the run: {machine.load:.1f}",
        ]
    )


def render_table(table: Table) -> str:
    """A title, the settings, aligned columns, and how many targets were reached."""
    cells = [_headings(table), *(_cells(row, table) for row in table.rows)]
    settings = [f"{name}={value}" for name, value in table.settings.items()]
    return "\n".join([table.title, *settings, "", *align(cells), "", _summary(table.rows)])


def align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns as wide as their widest cell, a rule below the first, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(_justified(index, cell, widths[index]) for index, cell in enumerate(row)) for row in cells]
    rule = "  ".join("-" * width for width in widths)
    return [lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:])]


def _justified(index: int, cell: str, width: int) -> str:
    return cell.ljust(width) if index < len(_WORDS) else cell.rjust(width)


_WORDS = ("work", "keep")
"""Headings of the columns that hold words."""


def _headings(table: Table) -> list[str]:
    baseline, contender = table.sides
    headings = [*_WORDS, f"{baseline} {table.unit}", f"{contender} {table.unit}", "ratio", "wanted", "reached"]
    return [*headings, f"{baseline} MB", f"{contender} MB"] if _shows_growth(table) else headings


def _cells(row: Comparison, table: Table) -> list[str]:
    both = (row.baseline, row.contender)
    figures = [_figure(side.best, table.unit) for side in both]
    wanted = "-" if row.wanted is None else f"{row.wanted:g}"
    cells = [row.work, row.keep, *figures, f"{row.ratio:.2f}", wanted, _verdict(row.reached)]
    return [*cells, *(_growth(side.growth) for side in both)] if _shows_growth(table) else cells


def _shows_growth(table: Table) -> bool:
    return any(side.growth is not None for row in table.rows for side in (row.baseline, row.contender))


def _figure(value: float, unit: Unit) -> str:
    if unit == "MB":
        return f"{value / MEGABYTE:.0f}"
    milliseconds = 1000 * value
    return f"{milliseconds:.1f}" if milliseconds < 1000 else f"{milliseconds:.0f}"  # noqa: PLR2004 - four digits


def _growth(value: int | None) -> str:
    return "-" if value is None else _figure(value, "MB")


def _verdict(reached: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[reached]


def _summary(rows: Sequence[Comparison]) -> str:
    asked = [row.reached for row in rows if row.reached is not None]
    return f"reached {sum(asked)} of {len(asked)}" if asked else "nothing is asked of these"
