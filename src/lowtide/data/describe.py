"""What a store or a part of one holds, at a glance: the facts first, then the same as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Field
from lowtide.data.view import Counts, View

_BINS = 12
_BAR = 40
"""Characters of the longest bar."""
_BLOCK = 1 << 18
_COLUMNS = 8
"""Columns of a field that are named."""


@dataclass(frozen=True)
class Histogram:
    """How many sequences have lengths in [edges[k], edges[k + 1])."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class FieldLine:
    """One field."""

    role: str
    name: str
    kind: str
    """Its type and shape."""
    source: str
    """The columns that it came from, or its vocabulary."""
    transforms: tuple[str, ...]


@dataclass(frozen=True)
class PartLine:
    """One part of a split."""

    name: str
    sequences: int
    steps: int


@dataclass(frozen=True)
class Description:
    """What there is to see of a store."""

    title: str
    sequences: int
    steps: int
    shortest: int
    longest: int
    bytes: int
    """On disk, of the whole store."""
    files: int
    fields: tuple[FieldLine, ...]
    parts: tuple[PartLine, ...]
    histogram: Histogram


def describe(view: View) -> Description:
    """Collect it; every length is read once, in blocks."""
    store = view.store
    lengths = view.lengths
    steps, shortest, longest = _extent(lengths)
    whole = view.index is None and view.start is None
    names = store.splits if whole else ()
    parts = ((name, store.split(name)) for name in names)
    return Description(
        title=f"{'Store' if whole else 'Part of the store'} {store.path}, version {store.manifest.version}",
        sequences=len(view),
        steps=steps,
        shortest=shortest,
        longest=longest,
        bytes=sum(entry.bytes for entry in store.manifest.files),
        files=len(store.manifest.files),
        fields=tuple(_field_line(field, store.transforms_of(field.name)) for field in store.schema.fields),
        parts=tuple(PartLine(name, len(part), _extent(part.lengths)[0]) for name, part in parts),
        histogram=histogram(lengths, shortest, longest),
    )


def histogram(lengths: Counts, shortest: int, longest: int) -> Histogram:
    """Count lengths: one bin a length where they are few, else bins that grow by a factor."""
    if longest - shortest < _BINS:
        edges = np.arange(shortest, longest + 2)
    else:
        grown = np.rint(np.geomspace(max(1, shortest), longest + 1, _BINS + 1)).astype(np.int64)
        edges = np.unique(np.append(grown, shortest))
    counts: Counts = np.zeros(len(edges) - 1, dtype=np.int64)
    for block in _blocks(lengths):
        counts += np.histogram(block, edges)[0]
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def to_text(description: Description) -> str:
    """For a terminal."""
    lines = [description.title, f"  {_sizes(description)}"]
    lines += _aligned([(line.role, line.name, line.kind, _origin(line)) for line in description.fields])
    lines += _aligned([("part", part.name, *_amount(part.sequences, part.steps)) for part in description.parts])
    most = max(description.histogram.counts, default=0)
    rows = [(label, _bar(count, most), f"{count:,}") for label, count in _bins(description.histogram)]
    lines += [f"  lengths from {description.shortest:,} to {description.longest:,}, {_mean(description)}"]
    return "\n".join([*lines, *_aligned(rows)])


def to_html(description: Description) -> str:
    """For a notebook: no scripts, no files from elsewhere."""
    fields = [(line.role, line.name, line.kind, _origin(line)) for line in description.fields]
    parts = [("part", part.name, *_amount(part.sequences, part.steps)) for part in description.parts]
    most = max(description.histogram.counts, default=0)
    bars = "".join(
        f"<tr><td>{label}</td><td><div style='background:#4a7fb5;height:0.8em;width:{_share(count, most):.1f}em'>"
        f"</div></td><td>{count:,}</td></tr>"
        for label, count in _bins(description.histogram)
    )
    return (
        f"<div><b>{escape(description.title)}</b><br>{_sizes(description)}"
        f"{_table(fields)}{_table(parts)}"
        f"lengths from {description.shortest:,} to {description.longest:,}, {_mean(description)}"
        f"<table>{bars}</table></div>"
    )


def bytes_text(count: int) -> str:
    """A size for people."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 - the next unit
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _extent(lengths: Counts) -> tuple[int, int, int]:
    """The sum of the lengths, the shortest and the longest."""
    found = [(int(block.sum()), int(block.min()), int(block.max())) for block in _blocks(lengths)]
    sums, lows, highs = zip(*found, strict=True) if found else ((0,), (0,), (0,))
    return sum(sums), min(lows), max(highs)


def _blocks(lengths: Counts) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(lengths), _BLOCK):
        yield np.asarray(lengths[start : start + _BLOCK])


def _field_line(field: Field, transforms: tuple[object, ...]) -> FieldLine:
    shape = (*("T",) * (field.per == "step"), *map(str, field.step_shape))
    source = ", ".join(field.columns[:_COLUMNS]) + (", ..." if len(field.columns) > _COLUMNS else "")
    return FieldLine(
        role=field.role,
        name=field.name,
        kind=f"{field.dtype} ({', '.join(shape)})",
        source=source if field.vocabulary is None else f"{source} (vocabulary {field.vocabulary!r})".strip(),
        transforms=tuple(str(getattr(transform, "kind", "")) for transform in transforms),
    )


def _origin(line: FieldLine) -> str:
    return " -> ".join([line.source, *line.transforms]) if line.transforms else line.source


def _sizes(description: Description) -> str:
    amount = ", ".join(_amount(description.sequences, description.steps))
    return f"{amount}; {bytes_text(description.bytes)} in {description.files:,} files"


def _amount(sequences: int, steps: int) -> tuple[str, str]:
    return f"{sequences:,} sequence{'s' * (sequences != 1)}", f"{steps:,} step{'s' * (steps != 1)}"


def _mean(description: Description) -> str:
    return f"{description.steps / max(1, description.sequences):,.1f} on average"


def _bins(counted: Histogram) -> list[tuple[str, int]]:
    spans = zip(counted.edges[:-1], counted.edges[1:], counted.counts, strict=True)
    return [(f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}", count) for low, high, count in spans]


def _share(count: int, most: int) -> float:
    """The length of a bar."""
    return _BAR * count / max(1, most)


def _bar(count: int, most: int) -> str:
    return "#" * max(round(_share(count, most)), int(count > 0))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>" if rows else ""
