"""How a plan is shown: as text and as HTML. Pure functions of the data."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from lowtide.memory.sizes import in_words
from lowtide.planning.manner import Manner

if TYPE_CHECKING:
    from lowtide.planning.plan import BucketPlan, Plan

_MINUTE = 60
_HOUR = 3600
Rows = Sequence[Sequence[str]]


def as_text(plan: Plan) -> str:
    """Tables of aligned columns, and the rest in words."""
    parts = [_headline(plan)]
    for heading, rows in _tables(plan):
        parts.append(f"\n{_aligned([heading, *rows])}")
    parts += [f"\n{line}" for line in _notes(plan)]
    return "\n".join(parts)


def as_html(plan: Plan) -> str:
    """The same for notebooks."""
    parts = [f"<p><b>{escape(_headline(plan))}</b></p>"]
    for heading, rows in _tables(plan):
        head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts += [f"<p>{escape(line)}</p>" for line in _notes(plan)]
    return "".join(parts)


def _headline(plan: Plan) -> str:
    return (
        f"fits: at most {in_words(plan.peak_bytes)} of {in_words(plan.budget)} ({plan.budget_source}), "
        f"batches of {plan.batch_size}, {plan.precision} on {plan.device}, {_duration(plan.seconds_per_epoch)} an epoch"
    )


def _tables(plan: Plan) -> list[tuple[Sequence[str], Rows]]:
    tables: list[tuple[Sequence[str], Rows]] = [
        (("what", "size", "share"), _components(plan)),
        (("up to steps", "batches", "rows at once", "how", "peak", "time an epoch"), list(map(_bucket, plan.buckets))),
    ]
    if plan.sizes_tried:
        tried = [
            (str(one.batch_size), f"{one.steps_per_second:,.0f}" if one.fits else "does not fit")
            for one in plan.sizes_tried
        ]
        tables.append((("batch size tried", "steps a second"), tried))
    if plan.offers:
        offers = [(one.what, in_words(one.saves), one.costs) for one in plan.offers]
        tables.append((("what else would help", "saves about", "at the cost of"), offers))
    return tables


def _components(plan: Plan) -> Rows:
    total = max(1, plan.peak_bytes)
    rows = [(one.name, in_words(one.bytes), f"{one.bytes / total:.0%}") for one in plan.components]
    return [*rows, ("together", in_words(plan.peak_bytes), "100%")]


def _bucket(bucket: BucketPlan) -> Sequence[str]:
    choice = bucket.choice
    how = str(Manner.of(choice))
    if choice.keep_chunks:
        how += f", {choice.keep_chunks} chunks kept"
    return (
        f"{choice.steps:,}",
        f"{bucket.batches:,.0f}",
        f"{min(choice.rows, bucket.batch_rows)} of {bucket.batch_rows}",
        how,
        in_words(bucket.bytes),
        _duration(bucket.seconds),
    )


def _notes(plan: Plan) -> list[str]:
    notes = [f"{plan.sure} Before the proof {in_words(plan.before_proof)} were predicted."]
    if plan.faster_with is not None:
        notes.append(f"With {in_words(plan.faster_with)} an epoch would be at least a twentieth faster.")
    if plan.prefetch_bytes is not None:
        notes.append(f"Loader: prefetch_bytes={plan.prefetch_bytes}.")
    if plan.foreach is not None:
        notes.append(f"Optimizer: foreach={plan.foreach}, set by plan.prepare(optimizer).")
    return notes


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"


def _aligned(rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
