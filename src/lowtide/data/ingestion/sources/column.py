"""What a source's column holds, as far as it matters how its values become numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "text", "time", "other"]

_NUMBERS = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL(\(.*\))?|BOOLEAN|BIGNUM|VARINT|HALF|u?int(8|16|32|64)"
    r"|(half)?float(16|32|64)?|double|decimal(32|64|128|256)\(.*\)|bool"
)
_TEXTS = re.compile(r"VARCHAR|ENUM\(.*\)|UUID|JSON|(large_)?string(_view)?|dictionary<.*>", re.DOTALL)
_TIMES = re.compile(r"(TIMESTAMP|DATE|TIME|INTERVAL).*|(timestamp|date|time|duration)(32|64)?(\[.*\])?")


@dataclass(frozen=True)
class ColumnType:
    """The type of one column."""

    kind: Kind
    told: str
    """What the source calls it, for messages."""
    depth: int = 0
    """Lists around each value: 1 for a list of steps, 2 for a list of steps with several features."""
    width: int | None = None
    """Features of a step, for depth 2, where the type says it."""

    @property
    def is_list(self) -> bool:
        """Whether a row holds all steps of a sequence."""
        return self.depth > 0


def column_type(told: str) -> ColumnType:
    """The type that DuckDB calls by this name."""
    depth, width, value = 0, None, told.strip()
    while (array := re.fullmatch(r"(.*)\[(\d*)\]", value, re.DOTALL)) is not None:
        if depth == 1 and array[2]:  # the list inside: the features of a step
            width = int(array[2])
        depth, value = depth + 1, array[1]
    return ColumnType(kind_of(value), told, depth, width)


def kind_of(scalar: str) -> Kind:
    """The kind of a type without lists, by DuckDB's or Arrow's name."""
    if _NUMBERS.fullmatch(scalar):
        return "number"
    if _TEXTS.fullmatch(scalar):
        return "text"
    return "time" if _TIMES.fullmatch(scalar) else "other"
