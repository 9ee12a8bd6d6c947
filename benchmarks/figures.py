"""Single figures with what they must reach: for benchmarks whose rows ask different questions. Loads no framework."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.report import Machine, align


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    question: str
    value: float
    unit: str
    bound: float | None = None
    """What it must reach; None where nothing is asked."""
    side: Literal["at least", "at most"] = "at most"
    detail: str = ""
    """What it was computed from."""

    @property
    def reached(self) -> bool | None:
        """Whether the bound is kept, not rounded."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.side == "at least" else self.value <= self.bound


def render_figures(figures: Sequence[Figure]) -> str:
    """A table, and how many bounds are kept."""
    rows = [["question", "from", "measured", "wanted", "reached"]]
    for figure in figures:
        wanted = "-" if figure.bound is None else f"{figure.side} {figure.bound:g}"
        verdict = {True: "yes", False: "no", None: "-"}[figure.reached]
        rows.append([figure.question, figure.detail, f"{figure.value:.3g} {figure.unit}".strip(), wanted, verdict])
    asked = [figure.reached for figure in figures if figure.reached is not None]
    return "\n".join([*align(rows), "", f"reached {sum(asked)} of {len(asked)}"])


def figures_to_json(machine: Machine, figures: Sequence[Figure]) -> str:
    """All figures, and the verdicts that follow from them."""
    rows: list[dict[str, Any]] = [{**asdict(figure), "reached": figure.reached} for figure in figures]
    return json.dumps({"machine": asdict(machine), "figures": rows}, indent=2) + "\n"
