"""How a store is split into named parts: by whole sequences, by lists of their names, or along time.

A rule is what the user asks for. It is kept with the splits it made, so that sequences appended later follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

from lowtide.errors import LowtideError

BILLION = 1_000_000_000
"""Fractions are held in billionths: whole numbers give the same cut on every machine."""
_MOST_PARTS = 127

Boundary: TypeAlias = int | float | str | date | datetime


@dataclass(frozen=True)
class BySequence:
    """Whole sequences go to parts by a hash of their names: appended data never move a sequence."""

    fractions: Mapping[str, float]
    """The share of each part; together 1. They are met as well as a hash meets them."""
    seed: int = 0
    """Another seed, another draw."""

    def __post_init__(self) -> None:
        """Refuse fractions that are none."""
        _check_fractions(self.fractions)
        if type(self.seed) is not int:
            raise _refused(f"seed={self.seed!r} is no whole number", "give a whole number as the split's seed")

    @property
    def names(self) -> tuple[str, ...]:
        """The parts."""
        return tuple(self.fractions)

    def to_json(self) -> dict[str, object]:
        """Plain values for the manifest."""
        return {"by": "sequence", "fractions": dict(self.fractions), "seed": self.seed}


@dataclass(frozen=True)
class ByIds:
    """Whole sequences go to parts by lists of their names."""

    parts: Mapping[str, Sequence[str | int]]
    """The names of each part's sequences."""
    rest: str | None = None
    """The part of all sequences that no list names, one of `parts` or another; None: there may be none."""

    def __post_init__(self) -> None:
        """Refuse a sequence in two parts."""
        _check_names(self.names)
        seen: dict[str | int, str] = {}
        for part, ids in self.parts.items():
            for name in ids:
                if seen.setdefault(name, part) != part:
                    raise _refused(
                        f"sequence {name!r} is listed in the parts {seen[name]!r} and {part!r}",
                        "list each sequence in one part",
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """The parts."""
        added = () if self.rest is None or self.rest in self.parts else (self.rest,)
        return (*self.parts, *added)

    def to_json(self) -> dict[str, object]:
        """Plain values for the manifest: without the lists, which the stored parts hold."""
        return {"by": "ids", "parts": list(self.names), "rest": self.rest}


@dataclass(frozen=True)
class ByTime:
    """Every sequence is cut along time: the parts follow each other in the order given."""

    fractions: Mapping[str, float] | None = None
    """The share of each part in every sequence; together 1."""
    until: Mapping[str, Boundary | None] | None = None
    """Instead of `fractions`, where each part ends: a value of the order column that belongs to the next part already
    (a number, a date, or a date as text; where the column has time zones and the date none, in UTC). The last part's is
    None: it goes on to the end."""

    def __post_init__(self) -> None:
        """Refuse what does not say where to cut."""
        if (self.fractions is None) == (self.until is None):
            raise _refused(
                "a split by time has fractions or the ends of its parts, one of them",
                'write ByTime(fractions={"train": 0.8, "test": 0.2}), or '
                'ByTime(until={"train": "2024-01-01", "test": None})',
            )
        if self.fractions is not None:
            _check_fractions(self.fractions)
        if self.until is not None:
            _check_names(tuple(self.until))
            ends = list(self.until.values())
            if ends[-1] is not None or any(end is None for end in ends[:-1]):
                raise _refused(
                    f"the parts end at {ends!r}, and only the last one may go on to the end (None)",
                    'give every part but the last its end, as in {"train": "2024-01-01", "test": None}',
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The parts."""
        return tuple(self.until or self.fractions or ())

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """The values of the order column at which a next part begins; none where fractions say it."""
        return tuple(end for end in (self.until or {}).values() if end is not None)

    def to_json(self) -> dict[str, object]:
        """Plain values for the manifest; dates as text."""
        if self.until is None:
            return {"by": "time", "fractions": dict(self.fractions or {})}
        ends = {name: end.isoformat() if isinstance(end, date) else end for name, end in self.until.items()}
        return {"by": "time", "until": ends}


Rule: TypeAlias = BySequence | ByIds | ByTime


def read_rule(request: Rule | Mapping[str, Any]) -> Rule:
    """The rule that a user asked for.

    Args:
        request: A rule; fractions of the sequences by part, `{"train": 0.8, "test": 0.2}`; lists of sequences' names
            by part; or plain values as a rule's `to_json` writes them.

    Raises:
        LowtideError: It is none of these, or contradicts itself.
    """
    if isinstance(request, BySequence | ByIds | ByTime):
        return request
    told: Any = request
    if not isinstance(told, Mapping) or not told:
        raise _refused(f"split={request!r} names no parts", _HOW)
    if "by" in request:
        return _described(request)
    kinds = {_kind(value) for value in request.values()}
    if kinds == {"fraction"}:
        return BySequence(dict(request))
    if kinds == {"ids"}:
        return ByIds({part: list(ids) for part, ids in request.items()})
    raise _refused(f"split={dict(request)!r} is neither fractions nor lists of sequences' names", _HOW)


def billionths(fractions: Mapping[str, float]) -> list[int]:
    """Where each part ends, in billionths of the whole; the last one's end is the whole."""
    ends, total = [], 0.0
    for fraction in fractions.values():
        total += fraction
        ends.append(round(total * BILLION))
    return [*ends[:-1], BILLION]


_HOW = (
    'give fractions of the sequences, {"train": 0.8, "test": 0.2}, lists of their names, {"train": [...], "test": '
    '[...]}, or ByTime(fractions={"train": 0.8, "test": 0.2}) to cut every sequence along time'
)


def _kind(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "fraction"
    return "ids" if isinstance(value, Sequence) and not isinstance(value, str) else "other"


def _described(request: Mapping[str, Any]) -> Rule:
    given = {key: value for key, value in request.items() if key != "by"}
    allowed = {
        "sequence": (BySequence, {"fractions", "seed"}),
        "ids": (ByIds, {"parts", "rest"}),
        "time": (ByTime, {"fractions", "until"}),
    }
    if request["by"] not in allowed or not set(given) <= allowed[request["by"]][1]:
        raise _refused(f"split={dict(request)!r} is no rule", _HOW)
    rule: Rule = allowed[request["by"]][0](**given)
    return rule


def _check_fractions(fractions: Mapping[str, float]) -> None:
    _check_names(tuple(fractions))
    for part, fraction in fractions.items():
        if _kind(fraction) != "fraction" or not 0 < fraction <= 1:
            raise _refused(
                f"part {part!r} is given the fraction {fraction!r}", "give every part more than 0 and up to 1"
            )
    total = sum(fractions.values())
    if abs(total - 1) > 1e-6:  # noqa: PLR2004 - fractions written with a few digits
        raise _refused(
            f"the fractions of {', '.join(map(repr, fractions))} add up to {total:g}",
            "give fractions that add up to 1; what is to be left out can be a part of its own, which is not used",
        )


def _check_names(names: tuple[Any, ...]) -> None:
    if not 0 < len(names) <= _MOST_PARTS or any(not isinstance(name, str) or not name for name in names):
        raise _refused(f"the parts are named {names!r}", f"name 1 to {_MOST_PARTS} parts, each by some text")


def _refused(what: str, fix: str) -> LowtideError:
    return LowtideError(
        what=what,
        why="a split must put every sequence, or every step, into one part and no other",
        fix=fix,
    )
