"""The parts of a store, made before windows are: each sequence, or each step of it, belongs to one part and no other.

A split by sequence holds one small number a sequence. A split by time holds the steps at which each sequence is cut,
as whole numbers. Both are stored with the rule that made them: sequences appended later follow it, and those that are
there stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.splitting.id_hash import Hashes, hash_ids
from lowtide.data.splitting.rules import BILLION, Boundary, ByIds, BySequence, ByTime, Rule, billionths, read_rule
from lowtide.errors import LowtideError

Counts = NDArray[np.int64]
Ids: TypeAlias = pa.Array | pa.ChunkedArray | NDArray[Any] | Sequence[str] | Sequence[int]

_NAMED = 5
"""Sequences that a message names before it goes on with their number."""


@dataclass(frozen=True)
class Part:
    """What belongs to one part: whole sequences, or a run of steps of each."""

    index: Counts
    """The sequences, in the order of the store."""
    start: Counts | None = None
    """The first step of each; None: all steps."""
    stop: Counts | None = None
    """The step after the last of each; None: all steps."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Which sequences, or which steps of each, belong to which part."""

    names: tuple[str, ...]
    rule: Mapping[str, Any]
    """The rule that made them, as plain values."""
    values: NDArray[Any]
    """By sequence: the number of its part, (sequences,) of int8. By time: where its parts begin, and its length,
    (sequences, parts + 1) of int64."""
    gap: int = 0
    """By time: steps before each cut that belong to no part, since their targets lie behind it."""

    @property
    def by_time(self) -> bool:
        """Whether every sequence is cut along time."""
        return self.values.ndim == 2  # noqa: PLR2004 - one row a sequence

    def part(self, name: str) -> Part:
        """What belongs to the part of this name; sequences without a step in it are left out.

        Raises:
            LowtideError: There is no such part, or the stored numbers cannot be true.
        """
        number = self._number(name)
        if not self.by_time:
            self._demand(_within(self.values, 0, len(self.names) - 1), "a sequence belongs to a part that is not there")
            return Part(np.flatnonzero(self.values == number))
        start, stop = self.values[:, number], self.values[:, number + 1]
        self._demand(bool((start >= 0).all() and (start <= stop).all()), "a part ends before it begins")
        self._demand(bool((stop <= self.values[:, -1]).all()), "a part goes on behind its sequence's end")
        if number + 1 < len(self.names):
            stop = np.maximum(start, stop - self.gap)
        index = np.flatnonzero(start < stop)
        return Part(index, np.ascontiguousarray(start[index]), np.ascontiguousarray(stop[index]))

    def to_json(self) -> dict[str, object]:
        """Plain values that, with `values`, give the splits back."""
        return {"names": list(self.names), "rule": dict(self.rule), "gap": self.gap}

    @staticmethod
    def from_json(described: Mapping[str, Any], values: NDArray[Any]) -> Splits:
        """The splits that were stored. Their numbers, which may lie on disk, are checked when a part is asked for.

        Raises:
            LowtideError: The two do not fit each other.
        """
        names, rule, gap = (described.get(key) for key in ("names", "rule", "gap"))
        named = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
        by_sequence = values.ndim == 1 and values.dtype == np.int8
        by_time = values.dtype == np.int64 and values.shape == (len(values), len(names or ()) + 1)
        if not named or not (by_sequence or by_time) or not isinstance(rule, dict) or type(gap) is not int or gap < 0:
            raise _damaged(f"parts {names!r} with numbers of shape {values.shape} and type {values.dtype}")
        return Splits(tuple(names or ()), rule, values, gap)

    def _number(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        raise LowtideError(
            what=f"the store has no part {name!r}",
            why=f"its parts are {', '.join(map(repr, self.names))}",
            fix="use one of these names",
        )

    def _demand(self, true: bool, otherwise: str) -> None:
        if not true:
            raise _damaged(otherwise)


def training_part(names: Sequence[str]) -> str:
    """The part that things are learnt from: "train", or the first where none is called so."""
    return "train" if "train" in names else names[0]


def make_splits(
    request: Rule | Mapping[str, Any] | None,
    *,
    ids: Ids | Iterable[pa.Array],
    lengths: Counts,
    before: Counts | None = None,
    gap: int = 0,
    after: Splits | None = None,
) -> Splits:
    """Split sequences into parts: a pure function of its arguments, the same on every machine.

    Args:
        request: A rule, or what `read_rule` takes for one; None goes on with the rule of `after`.
        ids: The sequences' names, text or whole numbers; arrays of them, one after the other, do as well.
        lengths: Their steps, in the same order.
        before: For a rule with ends as values of the order column: what `count_before` gives for these sequences.
        gap: For a split by time: steps before each cut that go to no part. With targets that lie `horizon` steps
            ahead, this many steps before a cut have their targets behind it.
        after: Splits of the sequences that are in the store already, which stay as they are.

    Raises:
        LowtideError: The request contradicts itself or the data, or a part would stay empty.
    """
    maker = SplitMaker(request, gap=gap, after=after)
    first = 0
    for chunk in _chunks(ids):
        last = first + len(chunk)
        maker.add(chunk, lengths[first:last], None if before is None else before[first:last])
        first = last
    assert first == len(lengths)
    return maker.finish()


class SplitMaker:
    """Makes splits of sequences that arrive bit by bit, keeping a few bytes of each."""

    def __init__(self, request: Rule | Mapping[str, Any] | None, *, gap: int = 0, after: Splits | None = None) -> None:
        """Begin with no sequences; the arguments are those of `make_splits`."""
        assert request is not None or after is not None
        self._after = after
        self._gap = gap
        self._rule = _rule_of(after) if after is not None and request is None else read_rule(request or {})
        if after is not None and (after.names != self._rule.names or after.by_time != isinstance(self._rule, ByTime)):
            raise LowtideError(
                what=f"the store is split into {list(after.names)}, and split= asks for {list(self._rule.names)}",
                why="appended sequences go to the parts that are there, and those that are there stay",
                fix="leave split= out, or ingest anew with the other parts",
            )
        self._values: list[NDArray[Any]] = []
        self._hashes: list[Hashes] = []
        self._found: set[str | int] = set()

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Values of the order column at which a part ends: with any, `add` wants the steps before them."""
        return self._rule.boundaries if isinstance(self._rule, ByTime) else ()

    def add(self, ids: pa.Array | NDArray[Any], lengths: Counts, before: Counts | None = None) -> None:
        """Take some more sequences: their names, their steps and, with `boundaries`, the steps before each."""
        array = pa.array(ids) if isinstance(ids, np.ndarray) else ids
        if isinstance(self._rule, ByTime):
            self._values.append(_cut(self._rule, lengths, before))
        elif isinstance(self._rule, ByIds):
            self._values.append(self._listed(self._rule, array))
        else:
            hashes = hash_ids(array, self._rule.seed)
            self._values.append(np.searchsorted(_thresholds(self._rule), hashes, side="right").astype(np.int8))
            if self._after is None:
                self._hashes.append(hashes)

    def finish(self) -> Splits:
        """The splits of all sequences taken, behind those that were there.

        Raises:
            LowtideError: A part is empty, or a listed sequence was not among them.
        """
        rule = self._rule
        width = (len(rule.names) + 1,) if isinstance(rule, ByTime) else ()
        kind: type[Any] = np.int64 if isinstance(rule, ByTime) else np.int8
        parts = self._values or [np.empty((0, *width), dtype=kind)]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if isinstance(rule, ByIds):
            _check_found(rule, self._found)
        if isinstance(rule, BySequence) and self._hashes:
            _fill_empty(rule, values, np.concatenate(self._hashes))
        gap = self._gap if self._after is None else self._after.gap
        if self._after is not None:
            values = np.concatenate([self._after.values, values])
        made = Splits(rule.names, rule.to_json(), values, gap)
        _check_none_empty(made)
        return made

    def _listed(self, rule: ByIds, ids: pa.Array) -> NDArray[np.int8]:
        listed = [name for names in rule.parts.values() for name in names]
        codes = [part for part, names in enumerate(rule.parts.values()) for _ in names]
        try:
            known = pa.array(listed, type=ids.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise LowtideError(
                what=f"split= lists names such as {listed[0]!r}, and the sequences' names are of type {ids.type}",
                why="a sequence is found by its name, text or whole number",
                fix="list the names as they are in the data",
            ) from error
        place = pc.index_in(ids, value_set=known)
        if rule.rest is None and place.null_count:
            unlisted = ids.filter(pc.is_null(place)).slice(0, _NAMED).to_pylist()
            raise LowtideError(
                what=f"split= lists no part for {place.null_count} sequences, {_some(unlisted)} among them",
                why="every sequence belongs to one part: none is left out without a word",
                fix='list them too, or name the part of all others: ByIds({...}, rest="train")',
            )
        rest = rule.names.index(rule.rest) if rule.rest is not None else 0
        self._found.update(listed[at] for at in place.drop_null().unique().to_pylist())
        table: NDArray[np.int8] = np.array([*codes, rest], dtype=np.int8)
        return table[np.asarray(place.fill_null(len(codes)), dtype=np.int64)]


def count_before(values: pa.Array | NDArray[Any], offsets: Counts, boundaries: Sequence[Boundary]) -> Counts:
    """Count the steps of each sequence that lie before each boundary.

    Counts of a sequence's pieces add up to those of the sequence.

    Args:
        values: The order column of some sequences, one after the other.
        offsets: Where each sequence begins, and the end: one more than there are sequences.
        boundaries: Values of that column: the steps before are those with a smaller one.

    Returns:
        (sequences, boundaries).

    Raises:
        LowtideError: A boundary cannot be compared with the column.
    """
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    counts = np.empty((len(offsets) - 1, len(boundaries)), dtype=np.int64)
    for column, boundary in enumerate(boundaries):
        smaller = pc.less(array, _comparable(boundary, array.type)).to_numpy(zero_copy_only=False)
        until = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(smaller, dtype=np.int64)])
        counts[:, column] = until[offsets[1:]] - until[offsets[:-1]]
    return counts


def _comparable(boundary: Boundary, kind: pa.DataType) -> pa.Scalar:
    """A boundary as a value of the order column's type."""
    temporal = pa.types.is_temporal(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    fits = {str: temporal or text, date: temporal, int: not temporal and not text, float: not temporal and not text}
    if not any(allowed for given, allowed in fits.items() if isinstance(boundary, given)):
        raise _incomparable(boundary, kind, "they cannot be compared")
    try:
        if isinstance(boundary, float) and pa.types.is_integer(kind):
            return pa.scalar(math.ceil(boundary), kind)
        if pa.types.is_timestamp(kind) and kind.tz is not None and not _has_zone(boundary):
            return pc.assume_timezone(pa.scalar(boundary).cast(pa.timestamp(kind.unit)), kind.tz)
        return pa.scalar(boundary).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError) as error:
        raise _incomparable(boundary, kind, str(error)) from error


def _has_zone(boundary: Boundary) -> bool:
    """Whether a date says which time zone it is in; one that does not is in the column's."""
    if isinstance(boundary, str):
        clock = boundary.replace("T", " ").partition(" ")[2]
        return clock.endswith("Z") or "+" in clock or "-" in clock
    return isinstance(boundary, datetime) and boundary.tzinfo is not None


def _incomparable(boundary: Boundary, kind: pa.DataType, why_not: str) -> LowtideError:
    return LowtideError(
        what=f"a part ends at {boundary!r}, and the order column is of type {kind}: {why_not}",
        why="steps are compared with the end of their part",
        fix="give the end as a value of that column: a number, a date, or a date as text (2024-01-31)",
    )


def _rule_of(splits: Splits) -> Rule:
    """The rule that sequences appended to these splits follow."""
    rule = dict(splits.rule)
    if rule.get("by") == "ids":
        rule["parts"] = {name: [] for name in splits.names if name != rule.get("rest")}
    return read_rule(rule)


def _thresholds(rule: BySequence) -> Hashes:
    """The hashes at which each part but the first begins."""
    return np.array([(end << 64) // BILLION for end in billionths(rule.fractions)[:-1]], dtype=np.uint64)


def _cut(rule: ByTime, lengths: Counts, before: Counts | None) -> Counts:
    cuts = np.empty((len(lengths), len(rule.names) + 1), dtype=np.int64)
    cuts[:, 0], cuts[:, -1] = 0, lengths
    if rule.until is not None:
        assert before is not None
        cuts[:, 1:-1] = before
        if bool((np.diff(cuts, axis=1) < 0).any()):
            raise LowtideError(
                what=f"the parts end at {list(rule.boundaries)!r}, which do not follow each other",
                why="along time, every part lies behind the one before",
                fix="name the parts from the earliest to the latest",
            )
        return cuts
    whole, rest = np.divmod(lengths.astype(np.int64), BILLION)
    for part, end in enumerate(billionths(rule.fractions or {})[:-1], start=1):
        cuts[:, part] = whole * end + (rest * end + BILLION // 2) // BILLION  # the nearest step, without overflow
    return cuts


def _fill_empty(rule: BySequence, codes: NDArray[np.int8], hashes: Hashes) -> None:
    """Give every part that the hash leaves empty, as happens with few sequences, the one that is nearest to it."""
    ends = [int(end) for end in _thresholds(rule)]
    for part, (low, high) in enumerate(zip([0, *ends], [*ends, (1 << 64) - 1], strict=True)):
        counts = np.bincount(codes, minlength=len(rule.names))
        spare = np.flatnonzero(counts[codes] > 1)
        if counts[part] or not len(spare):
            continue
        below, above = np.uint64(low), np.uint64(high)
        hashed = hashes[spare]
        distance = np.where(hashed < below, below - hashed, hashed - np.minimum(hashed, above))
        codes[spare[np.argmin(distance)]] = part


def _check_found(rule: ByIds, found: set[str | int]) -> None:
    missing = [name for names in rule.parts.values() for name in names if name not in found]
    if missing:
        raise LowtideError(
            what=f"split= lists {len(missing)} sequences the data do not have, {_some(missing[:_NAMED])} among them",
            why="a name that is mistyped would leave its sequence in another part",
            fix="list names as they are in the data",
        )


def _check_none_empty(splits: Splits) -> None:
    if splits.by_time:
        lengths = np.diff(splits.values, axis=1)
        lengths[:, :-1] -= splits.gap
        sizes = (lengths > 0).sum(axis=0)
    else:
        sizes = np.bincount(splits.values, minlength=len(splits.names))
    for name, some in zip(splits.names, sizes, strict=True):
        if not some:
            rows, what = len(splits.values), "step" if splits.by_time else "sequence"
            raise LowtideError(
                what=f"the part {name!r} gets no {what} of the {rows} sequences",
                why="nothing could be trained or measured on it",
                fix="give it more, name its sequences, or cut along time: ByTime(...)",
            )


def _chunks(ids: Ids | Iterable[Any]) -> Iterable[pa.Array | NDArray[Any]]:
    if isinstance(ids, pa.ChunkedArray):
        return list(ids.chunks)
    if isinstance(ids, pa.Array | np.ndarray):
        return [ids]
    if isinstance(ids, Sequence) and not (ids and isinstance(ids[0], pa.Array | np.ndarray)):
        return [pa.array(ids)] if ids else []
    return ids


def _within(values: NDArray[Any], low: int, high: int) -> bool:
    return len(values) == 0 or bool(values.min() >= low and values.max() <= high)


def _some(names: Sequence[object]) -> str:
    return ", ".join(map(repr, names))


def _damaged(what: str) -> LowtideError:
    return LowtideError(
        what=f"the store's splits are damaged: {what}",
        why="sequences could end up in a part that they do not belong to",
        fix="run store.verify(), and make the store again from its sources",
    )
