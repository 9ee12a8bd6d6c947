"""Sequences from Python: anything that gives one after the other, each `{"id": ..., "x": array, "y": ...}`.

Small sequences are brought together in chunks; a large one, which may be a memory map, is taken piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lowtide.data.disk.row_buffer import Name
from lowtide.data.fields import Array
from lowtide.data.ingestion.field_plan import FieldPlan, some
from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sources.array_plan import ID, gathered, plan_arrays
from lowtide.data.ingestion.sources.chunk import Raw, RawChunk, offsets_of
from lowtide.data.ingestion.sources.source import Place, Setting, Source
from lowtide.errors import LowtideError

Item: TypeAlias = Mapping[str, Any]
Items: TypeAlias = "Iterable[Item] | Callable[[], Iterable[Item]]"

_CHUNK_BYTES = 4 << 20
_MOST_SEQUENCES = 1 << 14


class Generator(Source):
    """Sequences one by one."""

    def __init__(
        self, items: Items, request: Request, *, called: str = "the generator", total: int | None = None
    ) -> None:
        """Take the first sequence, to see what there is.

        Args:
            items: The sequences, or a function that begins to give them.
            request: What was asked for.
            called: What messages call it.
            total: How many there are, where that is known.

        Raises:
            LowtideError: There is none, or it is no mapping of arrays.
        """
        self._request = request
        self._called = called
        self._total = total
        self._id_key = request.sequence or ID
        remaining = iter(items() if callable(items) else items)
        first = next(remaining, None)
        if first is None:
            raise LowtideError(
                what=f"{called} gave no sequence",
                why="a store needs at least one",
                fix="a generator gives its sequences once: make a new one, or hand over the function that makes it",
            )
        self._keys = frozenset(self._checked(first, 0))
        self._first = {key: np.asarray(value) for key, value in first.items() if key != self._id_key}
        self._items = chain([first], remaining)
        self._named = self._id_key in first
        if request.sequence is not None and not self._named:
            raise LowtideError(
                what=f"the first sequence has no {request.sequence!r}, which sequence= names",
                why=f"it has {some(list(first))}",
                fix=f'yield it, or "{ID}", or leave sequence= out: then sequences are numbered',
            )
        number = self._named and not isinstance(first[self._id_key], str)
        self.id_type = "int64" if number or not self._named else "string"
        self.names_differ = not self._named

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields, from the first sequence's arrays."""
        return plan_arrays(self._request, self._first)

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The sequences in order."""
        setting.meter.begin("writing")
        step_bytes = sum(plan.field.step_bytes for plan in fields if plan.field.per == "step")
        most = max(1, _CHUNK_BYTES // max(1, step_bytes))
        waiting: list[tuple[Name, dict[str, Array], int]] = []
        steps = 0
        for number, item in enumerate(self._items):
            taken = self._taken(item, fields, number, setting.before)
            if waiting and (steps + taken[2] > most or len(waiting) == _MOST_SEQUENCES):
                yield self._together(waiting, fields)
                waiting, steps = [], 0
            if taken[2] > most:
                yield from self._in_pieces(taken, fields, most)
            else:
                waiting.append(taken)
                steps += taken[2]
            if self._total:
                setting.meter.reached((number + 1) / self._total)
        if waiting:
            yield self._together(waiting, fields)

    def where(self, place: Place) -> str:
        """The sequence's number and name."""
        step = "" if place.step is None else f", step {place.step}"
        named = f" ({place.name!r})" if self._named else ""
        return f"sequence {place.sequence}{named} of {self._called}, {place.column!r}{step}"

    def _checked(self, item: object, number: int) -> Item:
        if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
            raise LowtideError(
                what=f"sequence {number} of {self._called} is a {type(item).__name__}",
                why="arrays are known by their names",
                fix='yield mappings: {"id": "a", "x": array of (steps, features), "y": target}',
            )
        return item

    def _taken(
        self, item: object, fields: Sequence[FieldPlan], number: int, before: int
    ) -> tuple[Name, dict[str, Array], int]:
        """A sequence's name, its fields' arrays and its steps, checked."""
        found = self._checked(item, number)
        if found.keys() != self._keys:
            odd = min(found.keys() ^ self._keys)
            raise LowtideError(
                what=f"sequence {number} of {self._called} has {some(sorted(found))}, the first had "
                f"{some(sorted(self._keys))}",
                why=f"every sequence has the same fields, and {odd!r} is not in both",
                fix="yield the same names for every sequence",
            )
        name = self._name(found[self._id_key], number) if self._named else before + number
        arrays = {}
        steps = -1
        for plan in fields:
            array = self._array(plan, found, number)
            arrays[plan.field.name] = array
            if plan.field.per == "step":
                if steps >= 0 and len(array) != steps:
                    raise LowtideError(
                        what=f"sequence {number} ({name!r}) of {self._called}: {plan.field.name!r} has {len(array)} "
                        f"steps, where others have {steps}",
                        why="all fields with values per step go through time together",
                        fix="give all as many steps; what has one value a sequence is named as label= or static=",
                    )
                steps = len(array)
        return name, arrays, steps

    def _array(self, plan: FieldPlan, item: Item, number: int) -> Array:
        try:
            array = gathered(plan, item)
        except (ValueError, TypeError) as error:
            raise self._odd(plan, number, f"is no array of numbers ({error})") from error
        if array.dtype.kind not in ("fiub" if plan.kind == "number" else "OUiub"):
            raise self._odd(plan, number, f"is of type {array.dtype}")
        axes = 1 if plan.field.per == "step" else 0
        wanted = plan.field.step_shape
        found = array.shape[axes:]
        # A field asked for as a list of one name has an axis of features, which its arrays may lack.
        fits = array.ndim >= axes and (found == wanted or (wanted == (1,) and found == ()))
        if not fits:
            told = ", ".join((*("steps",) * axes, *map(str, wanted)))
            raise self._odd(plan, number, f"has the shape {array.shape}, and not ({told})")
        return array

    def _name(self, told: object, number: int) -> Name:
        if self.id_type == "string" and isinstance(told, str):
            return told
        if self.id_type == "int64" and isinstance(told, int | np.integer) and not isinstance(told, bool):
            if abs(int(told)) <= np.iinfo(np.int64).max:
                return int(told)
            raise LowtideError(
                what=f"sequence {number} of {self._called} is called {told}",
                why="names that are whole numbers are stored in 64 bits",
                fix="give names as text, str(name), to all sequences",
            )
        raise LowtideError(
            what=f"sequence {number} of {self._called} is called {told!r}, a {type(told).__name__}",
            why=f"names are text, or whole numbers, the same for all; the first was of type {self.id_type}",
            fix="give every sequence a name of the same type",
        )

    def _odd(self, plan: FieldPlan, number: int, what: str) -> LowtideError:
        return LowtideError(
            what=f"sequence {number} of {self._called}: {plan.columns[0]!r} {what}",
            why="a field has the same shape and type in every sequence, but for its steps",
            fix="make it like that of the first sequence",
        )

    def _together(self, waiting: list[tuple[Name, dict[str, Array], int]], fields: Sequence[FieldPlan]) -> RawChunk:
        steps: dict[str, Raw] = {}
        values: dict[str, Raw] = {}
        for plan in fields:
            arrays = [arrays[plan.field.name] for _, arrays, _ in waiting]
            if plan.field.per == "step":
                steps[plan.field.name] = np.concatenate(arrays)
            else:
                values[plan.field.name] = np.stack(arrays)
        lengths = np.array([length for _, _, length in waiting], dtype=np.int64)
        return RawChunk(self._names([name for name, _, _ in waiting]), offsets_of(lengths), steps, values)

    def _in_pieces(
        self, taken: tuple[Name, dict[str, Array], int], fields: Sequence[FieldPlan], most: int
    ) -> Iterator[RawChunk]:
        name, arrays, length = taken
        values: dict[str, Raw] = {
            plan.field.name: arrays[plan.field.name][np.newaxis] for plan in fields if plan.field.per == "sequence"
        }
        for start in range(0, length, most):
            stop = min(start + most, length)
            steps: dict[str, Raw] = {
                plan.field.name: np.asarray(arrays[plan.field.name][start:stop])
                for plan in fields
                if plan.field.per == "step"
            }
            offsets = np.array([0, stop - start], dtype=np.int64)
            yield RawChunk(self._names([name]), offsets, steps, values, continues=start > 0, goes_on=stop < length)

    def _names(self, names: list[Name]) -> pa.Array:
        return pa.array(names, pa.string() if self.id_type == "string" else pa.int64())
