"""NumPy arrays in memory or mapped: one series, sequences of one length, padded ones with their lengths, or lists.

array (steps,) or (steps, features)              one series
array (sequences, steps, features)               sequences of equal lengths
list of arrays                                   a sequence each
{"x": array, "y": array, "lengths": array, ...}  the same with several arrays; `lengths` says what is padding
.npy, .npz                                       the same; several .npy files are a sequence each
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lowtide.data.fields import Array
from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sources.array_plan import ID, gathered, plan_arrays
from lowtide.data.ingestion.sources.chunk import Raw, RawChunk, offsets_of
from lowtide.data.ingestion.sources.generator import Generator
from lowtide.data.ingestion.sources.source import Place, Setting, Source
from lowtide.data.ingestion.sources.table import identity_of, names_of
from lowtide.errors import LowtideError

LENGTHS = "lengths"
_CHUNK_BYTES = 4 << 20
_STACKED = 3
"""Axes of an array of sequences."""


def is_arrays(source: object) -> bool:
    """Whether it is an array, a list of arrays, or arrays by name."""
    if isinstance(source, np.ndarray):
        return True
    if isinstance(source, Mapping):
        return bool(source) and all(_array_like(value) for value in source.values())
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(each, np.ndarray) for each in source)


def arrays_source(source: Any, request: Request, *, called: str = "the arrays") -> Source:  # noqa: ANN401 - see is_arrays
    """The source for arrays.

    Raises:
        LowtideError: Their shapes do not fit each other.
    """
    if not isinstance(source, Mapping):
        source = {"x": source}
    lists = [name for name, value in source.items() if isinstance(value, list | tuple)]
    if any(isinstance(source[name][0], np.ndarray) for name in lists if len(source[name])):
        return _of_lists(source, request, called)
    arrays = {name: value if isinstance(value, np.ndarray) else np.asarray(value) for name, value in source.items()}
    most = max(array.ndim for array in arrays.values())
    if most >= _STACKED or request.layout == "list" or LENGTHS in arrays:
        return StackedArrays(arrays, request, called)
    return Generator([arrays], request, called=called, total=1)


def array_files(paths: Sequence[Path], request: Request) -> Source:
    """The source for .npy and .npz files.

    Raises:
        LowtideError: A file holds no arrays, or objects that only pickle could read.
    """
    if len(paths) == 1:
        found = _loaded(paths[0])
        arrays = found if isinstance(found, Mapping) else {"x": found}
        return FiledArrays(paths, arrays_source(arrays, request, called=str(paths[0])))

    def items() -> Iterator[dict[str, Any]]:
        for path, name in zip(paths, names_of(paths), strict=True):
            found = _loaded(path)
            yield {ID: name, **(found if isinstance(found, Mapping) else {"x": found})}

    return FiledArrays(paths, Generator(items, request, called="the files", total=len(paths)))


class StackedArrays(Source):
    """Sequences of one length along the first axis, or padded to it."""

    def __init__(self, arrays: Mapping[str, Array], request: Request, called: str) -> None:
        """Look at the shapes.

        Raises:
            LowtideError: The arrays are of different numbers of sequences.
        """
        self._request = request
        self._called = called
        self._lengths = _lengths_of(arrays)
        self._ids = arrays.get(request.sequence or ID)
        key = request.sequence or ID
        self._arrays = {name: array for name, array in arrays.items() if name not in {LENGTHS, key}}
        counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
        if len(set(counts.values())) != 1 or not self._arrays or 0 in counts.values():
            raise LowtideError(
                what=f"the arrays have different numbers of sequences along their first axis, or none: {counts}",
                why="the first axis goes through the sequences",
                fix="give every array as many; one series alone has the shape (steps, features)",
            )
        self._count = next(iter(counts.values()))
        number = self._ids is None or self._ids.dtype.kind in "iu"
        self.id_type = "int64" if number else "string"
        self.names_differ = self._ids is None

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields, from the first sequence."""
        return plan_arrays(self._request, {name: array[0] for name, array in self._arrays.items()})

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The sequences in order."""
        setting.meter.begin("writing")
        per_step = [plan for plan in fields if plan.field.per == "step"]
        steps = self._arrays[per_step[0].columns[0]].shape[1]
        self._check_lengths(per_step, steps)
        size = sum(plan.field.step_bytes for plan in per_step) * max(1, steps)
        most = max(1, _CHUNK_BYTES // max(1, size))
        for start in range(0, self._count, most):
            stop = min(start + most, self._count)
            yield self._chunk(fields, start, stop, steps, setting.before)
            setting.meter.reached(stop / self._count)

    def where(self, place: Place) -> str:
        """The sequence's number."""
        step = "" if place.step is None else f", step {place.step}"
        return f"sequence {place.sequence} of {self._called}, {place.column!r}{step}"

    def _chunk(self, fields: Sequence[FieldPlan], start: int, stop: int, steps: int, before: int) -> RawChunk:
        some = {name: array[start:stop] for name, array in self._arrays.items()}
        lengths = np.full(stop - start, steps, dtype=np.int64)
        kept = None
        if self._lengths is not None:
            lengths = self._lengths[start:stop].astype(np.int64)
            kept = np.arange(steps) < lengths[:, np.newaxis]
        per_step: dict[str, Raw] = {}
        values: dict[str, Raw] = {}
        for plan in fields:
            array = gathered(plan, some)
            if plan.field.per == "sequence":
                values[plan.field.name] = array
            elif kept is not None:
                per_step[plan.field.name] = array[kept]
            else:
                per_step[plan.field.name] = array.reshape(-1, *array.shape[2:])
        names = np.arange(before + start, before + stop) if self._ids is None else self._ids[start:stop]
        told = pa.array(names.tolist() if self.id_type == "string" else names.astype(np.int64))
        return RawChunk(told, offsets_of(lengths), per_step, values)

    def _check_lengths(self, per_step: Sequence[FieldPlan], steps: int) -> None:
        for plan in per_step:
            for name in plan.columns:
                if self._arrays[name].shape[1] != steps:
                    raise LowtideError(
                        what=f"{name!r} has {self._arrays[name].shape[1]} steps along its second axis, others {steps}",
                        why="all fields with values per step go through time together",
                        fix="give all as many steps; what has one value a sequence is named as label= or static=",
                    )
        if self._lengths is not None:
            wrong = np.flatnonzero((self._lengths < 0) | (self._lengths > steps))
            if len(wrong):
                raise LowtideError(
                    what=f"lengths[{wrong[0]}] is {self._lengths[wrong[0]]}, and the arrays have {steps} steps",
                    why="lengths say how many of the steps are no padding",
                    fix=f"give lengths from 0 to {steps}",
                )


class FiledArrays(Source):
    """Arrays that come from files."""

    def __init__(self, paths: Sequence[Path], inner: Source) -> None:
        """Be the inner source, and know the files."""
        self._paths = paths
        self._inner = inner
        self.id_type = inner.id_type
        self.names_differ = inner.names_differ

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The files' names, sizes and times."""
        return identity_of(self._paths)

    def plan(self) -> tuple[FieldPlan, ...]:
        """The fields."""
        return self._inner.plan()

    def chunks(self, fields: Sequence[FieldPlan], setting: Setting) -> Iterator[RawChunk]:
        """The sequences in order."""
        setting.meter.expect(source_bytes=sum(path.stat().st_size for path in self._paths))
        yield from self._inner.chunks(fields, setting)

    def where(self, place: Place) -> str:
        """The file, and the sequence's number."""
        if len(self._paths) > 1:
            step = "" if place.step is None else f", step {place.step}"
            return f"{self._paths[place.sequence]}, {place.column!r}{step}"
        return self._inner.where(place)


def _lengths_of(arrays: Mapping[str, Array]) -> Array | None:
    lengths = arrays.get(LENGTHS)
    if lengths is not None and (lengths.ndim != 1 or lengths.dtype.kind not in "iu"):
        raise LowtideError(
            what=f"lengths have the shape {lengths.shape} and the type {lengths.dtype}",
            why="they say of each sequence how many of its steps are no padding",
            fix="give one whole number a sequence",
        )
    return lengths


def _of_lists(source: Mapping[str, Any], request: Request, called: str) -> Source:
    counts = {name: len(value) for name, value in source.items()}
    if len(set(counts.values())) != 1:
        raise LowtideError(
            what=f"the lists have different numbers of sequences: {counts}",
            why="each place in them is a sequence",
            fix="give every list as many",
        )
    total = next(iter(counts.values()))

    def items() -> Iterator[dict[str, Any]]:
        for place in range(total):
            yield {name: value[place] for name, value in source.items()}

    return Generator(items, request, called=called, total=total)


def _loaded(path: Path) -> Any:  # noqa: ANN401 - an array, or arrays by name
    try:
        found = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        # An archive reads its arrays when they are asked for, each time anew.
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise LowtideError(
            what=f"{path} cannot be read as NumPy arrays: {error}",
            why="objects in such files are pickles, which can run any program; and a file cut short holds no arrays",
            fix="save arrays of numbers with numpy.save, or write the file again",
        ) from error


def _array_like(value: object) -> bool:
    return isinstance(value, np.ndarray) or (isinstance(value, list | tuple) and len(value) > 0)
