"""How a breakdown is shown: as text and as HTML. Pure functions of the data."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from lowtide.memory.sizes import in_words

if TYPE_CHECKING:
    from lowtide.memory.breakdown import Breakdown, Part

MOST_LINES = 8
"""Lines of one component; the smallest beyond that are added up in one."""
_HEADINGS = ("what", "", "where", "size", "share")
_NUMBERS = 2
"""Columns at the end that hold numbers."""
_NOT_THERE = "(to come)"


def as_text(breakdown: Breakdown) -> str:
    """A table of aligned columns."""
    rows = [_HEADINGS, *_rows(breakdown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def as_html(breakdown: Breakdown) -> str:
    """A table for notebooks."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in _HEADINGS)
    body = "".join(
        "<tr>" + "".join(_html_cell(index, cell) for index, cell in enumerate(row)) + "</tr>"
        for row in _rows(breakdown)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _rows(breakdown: Breakdown) -> list[tuple[str, str, str, str, str]]:
    total = breakdown.bytes
    rows = []
    for component, parts in groupby(breakdown.parts, key=lambda part: part.component):
        title: str = component
        for name, device, size in _lines(list(parts)):
            rows.append((title, name, device, in_words(size), _share(size, total)))
            title = ""
    return [*rows, ("together", "", "", in_words(total), _share(total, total))]


def _lines(parts: list[Part]) -> list[tuple[str, str, int]]:
    """Name, device and size of each part; the smallest of many in one line."""
    if len(parts) > MOST_LINES:
        parts = sorted(parts, key=lambda part: part.bytes, reverse=True)
    shown, rest = parts[:MOST_LINES], parts[MOST_LINES:]
    lines = [(part.name if part.there else f"{part.name} {_NOT_THERE}", part.device, part.bytes) for part in shown]
    if rest:
        devices = ", ".join(sorted({part.device for part in rest}))
        lines.append((f"{len(rest)} more", devices, sum(part.bytes for part in rest)))
    return lines


def _share(size: int, total: int) -> str:
    return f"{100 * size / total:.1f} %" if total else "-"


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    words = len(row) - _NUMBERS
    return [
        cell.ljust(width) if index < words else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _html_cell(index: int, cell: str) -> str:
    side = "left" if index < len(_HEADINGS) - _NUMBERS else "right"
    return f'<td style="text-align:{side}">{escape(cell)}</td>'
