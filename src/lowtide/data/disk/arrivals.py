"""What is handed to a writer, checked against the schema: types, shapes, lengths, nothing missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowtide.data.disk.arrow import numbers_of
from lowtide.data.disk.row_buffer import Name
from lowtide.data.fields import ID, Array, Field, Schema
from lowtide.errors import LowtideError

_INT64 = np.iinfo(np.int64)


def check_name(schema: Schema, name: object) -> Name:
    """The name of a sequence, as it is stored.

    Raises:
        LowtideError: It is not of the schema's type, or is no text.
    """
    if schema.id_type == "string":
        if isinstance(name, str) and _is_text(name):
            return name
    elif isinstance(name, int | np.integer) and _INT64.min <= name <= _INT64.max:
        return int(name)
    raise LowtideError(
        what=f"a sequence is called {name!r}, a {type(name).__name__}",
        why=f"the names of this store's sequences are of type {schema.id_type}, and are stored as UTF-8",
        fix="convert all names to this type",
    )


def _is_text(name: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair, as from a wrong encoding, cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_steps(schema: Schema, name: Name, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
    """The arrays per step of one sequence, and how many steps they have.

    Raises:
        LowtideError: One is missing, of another type or shape, or longer than another.
    """
    found = {field.name: _checked(field, name, arrays, axes=1) for field in schema.per_step}
    lengths = {key: len(array) for key, array in found.items()}
    steps = next(iter(lengths.values()))
    if any(length != steps for length in lengths.values()):
        raise LowtideError(
            what=f"sequence {name!r}: its fields have different lengths, {lengths}",
            why="all fields with values per step go through time together",
            fix="give every field as many steps as the others",
        )
    return found, steps


def check_values(schema: Schema, name: Name, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The values per sequence of one sequence.

    Raises:
        LowtideError: One is missing, or of another type or shape.
    """
    return {field.name: _checked(field, name, arrays, axes=0) for field in schema.per_sequence}


def check_keys(fields: Iterable[Field], name: Name, arrays: Mapping[str, Array]) -> None:
    """See that nothing was given that has no field.

    Raises:
        LowtideError: Something was.
    """
    known = [field.name for field in fields]
    unknown = sorted(set(arrays) - set(known))
    if unknown:
        raise LowtideError(
            what=f"sequence {name!r}: {unknown[0]!r} is not one of the fields {known}",
            why="it would be left out without a word",
            fix="leave it out, or describe it in the schema",
        )


def check_rows(schema: Schema, rows: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.int64], dict[str, Array]]:
    """Many whole sequences at once: their names, their lengths, and each field's values one after the other.

    Raises:
        LowtideError: The columns are not those of the schema, something is missing, or lengths differ.
    """
    wanted = schema.arrow
    if rows.schema.names != wanted.names:
        raise _wrong_rows(f"the columns are {rows.schema.names}", f"columns {wanted.names}, in this order")
    for column, field in zip(rows.columns, wanted, strict=True):
        if not _same(column.type, field.type):
            raise _wrong_rows(f"the column {field.name!r} is of type {column.type}", f"type {field.type}")
        if column.null_count:
            raise _wrong_rows(f"the column {field.name!r} has {column.null_count} missing values", "a value everywhere")
    rows.validate()
    lengths = np.zeros(0, dtype=np.int64)
    arrays = {}
    for number, field_ in enumerate(schema.per_step):
        column = rows.column(field_.name)
        offsets = numbers_of(column.offsets)
        steps = np.diff(offsets)
        if number and not np.array_equal(steps, lengths):
            row = int(np.flatnonzero(steps != lengths)[0])
            raise _wrong_rows(
                f"sequence {rows.column(ID)[row].as_py()!r}: {field_.name!r} has {steps[row]} steps, "
                f"{schema.per_step[0].name!r} has {lengths[row]}",
                "as many steps in every field",
            )
        lengths = steps
        arrays[field_.name] = _flat(field_, column.values[int(offsets[0]) : int(offsets[-1])])
    for field_ in schema.per_sequence:
        arrays[field_.name] = _flat(field_, rows.column(field_.name))
    return rows.column(ID), lengths, arrays


def _checked(field: Field, name: Name, arrays: Mapping[str, Array], *, axes: int) -> Array:
    if field.name not in arrays:
        raise LowtideError(
            what=f"sequence {name!r} has no field {field.name!r}",
            why="every sequence has every field of the schema",
            fix="give it, or leave the field out of the schema",
        )
    array = np.asarray(arrays[field.name])
    fits = array.ndim == axes + len(field.step_shape) and array.shape[axes:] == field.step_shape
    if fits and array.dtype == field.storage:
        return array
    wanted = ", ".join((*("T",) * axes, *map(str, field.step_shape)))
    stored = f"{field.dtype} (its bits, as uint16)" if field.dtype == "bfloat16" else field.dtype
    raise LowtideError(
        what=f"sequence {name!r}: field {field.name!r} is of type {array.dtype} and shape {array.shape}",
        why=f"it is stored as {stored} of shape ({wanted})",
        fix="convert it, or describe the field as it is",
    )


def _flat(field: Field, column: pa.Array) -> Array:
    """The numbers of a column of values, one after the other, without a copy."""
    scalars = column.flatten() if field.width else column
    if scalars.null_count:
        raise _wrong_rows(f"the column {field.name!r} has {scalars.null_count} missing values", "a value everywhere")
    numbers = numbers_of(scalars)
    return numbers.reshape(-1, field.width) if field.width else numbers


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types lie in memory alike, whatever the inner fields are called."""
    if pa.types.is_large_list(wanted):
        return pa.types.is_large_list(found) and _same(found.value_type, wanted.value_type)
    if pa.types.is_fixed_size_list(wanted):
        sized = pa.types.is_fixed_size_list(found) and found.list_size == wanted.list_size
        return sized and _same(found.value_type, wanted.value_type)
    return bool(found == wanted)


def _wrong_rows(found: str, wanted: str) -> LowtideError:
    return LowtideError(
        what=f"a batch of rows does not fit the schema: {found}",
        why=f"the store has {wanted}",
        fix="convert the rows to the types of `schema.arrow`",
    )
