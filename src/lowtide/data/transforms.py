"""Transforms of a store's fields: fitted to the training part alone, stored as numbers, applied when a batch is made.

Each field goes through a chain of them. `fit_transforms` makes the chains of all fields, `read_transforms` brings them
back out of a manifest, `apply_all` and `invert_all` go through the chain of one field there and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowtide.data.fields import Array, Schema
from lowtide.data.transforming.affine import MinMax, Standard
from lowtide.data.transforming.logarithm import Log1p
from lowtide.data.transforming.own import Own
from lowtide.data.transforming.per_sequence import PerSequence
from lowtide.data.transforming.principal import Principal
from lowtide.data.transforming.request import Requested, singles
from lowtide.data.transforming.transform import VERSION, Begun, Offsets, Transform, column_names, working_copy
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.view import View

__all__ = [
    "Transform",
    "apply_all",
    "fit_transforms",
    "invert_all",
    "of_field",
    "read_transforms",
    "results_of",
    "sequence_numbers",
]

Numbers = tuple["Array | None", ...]
"""What was found in the sequences themselves, one entry a transform; None where nothing was."""

_KINDS: Mapping[str, type[Transform]] = {
    kind.kind: kind for kind in (Standard, MinMax, Principal, PerSequence, Log1p, Own)
}


def fit_transforms(view: View, requested: Requested) -> tuple[Transform, ...]:
    """Fit transforms, each in one pass over a view in bounded memory.

    Args:
        view: The training part; nothing else is looked at.
        requested: `{field or column: transforms}`, or transforms for every floating-point input. Transforms are one or
            a list of "standard", "minmax", "log1p", "per_sequence", `{"kind": "pca", "components": 8}`, objects with
            `partial_fit` and `transform`, and `{"kind": any of these, "columns": [...]}` for some columns; those of
            a list are applied one after the other, each fitted to what the one before gives.

    Returns:
        All of them, in the order in which they are applied; the ones of one field are `of_field(...)`.

    Raises:
        LowtideError: Something asked for is not there, a field holds whole numbers, a value is not finite.
    """
    made: tuple[Transform, ...] = ()
    wanted = singles(requested, view.schema)
    if wanted:
        from lowtide.data.transforming.fitting import fitted  # noqa: PLC0415 - only where something is fitted

        for single in wanted:
            made = (*made, fitted(single, of_field(made, single.field.name), view))
    return made


def read_transforms(described: Iterable[Mapping[str, Any]], schema: Schema) -> tuple[Transform, ...]:
    """The transforms that their `to_json` described.

    Raises:
        LowtideError: They do not fit the store's fields, are damaged, or were written by a newer Lowtide.
    """
    made: tuple[Transform, ...] = ()
    for told in described:
        try:
            made = (*made, _read(told, made, schema))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise LowtideError(
                what=f"a stored transform cannot be read: {type(error).__name__}: {error}",
                why="batches would come out in another scale than the one that a model was trained in",
                fix="run store.verify(); use the Lowtide that wrote the store, or make it again from its sources",
            ) from error
    return made


def of_field(transforms: Iterable[Transform], field: str) -> tuple[Transform, ...]:
    """The chain of one field."""
    return tuple(transform for transform in transforms if transform.field == field)


def results_of(schema: Schema, transforms: Iterable[Transform], field: str) -> tuple[tuple[str, ...], np.dtype[Any]]:
    """The columns that a batch has of a field, and their type, behind its chain."""
    stored = schema.field(field)
    chain = of_field(transforms, field)
    held = stored.values(np.empty(0, dtype=stored.storage))
    made = working_copy(held, in_place=True) if chain else held
    return (chain[-1].results if chain else column_names(stored)), made.dtype


def apply_all(chain: Sequence[Transform], values: Array, offsets: Offsets | None, *, in_place: bool = False) -> Array:
    """Take steps through the chain of their field.

    Args:
        chain: The transforms of the field, as `of_field` gives them.
        values: (steps, width), or (steps,) for a field of width 0; bfloat16 as float32.
        offsets: Where each sequence begins, and the end; None for values per sequence.
        in_place: The array may be overwritten.

    Returns:
        (steps, columns) of float32 or float64; the array itself where in place and possible, or without transforms.

    Raises:
        LowtideError: A value cannot be transformed.
    """
    for place, transform in enumerate(chain):
        values = transform.apply(values, offsets, in_place=in_place or place > 0)
    return values


def sequence_numbers(chain: Sequence[Transform], values: Array, offsets: Offsets) -> Numbers:
    """What the chain finds in each sequence itself, to be kept for the way back.

    Args:
        chain: The transforms of the field.
        values: Steps as stored, as `apply_all` takes them; they stay as they are.
        offsets: Where each sequence begins, and the end.
    """
    found = []
    for place, transform in enumerate(chain):
        found.append(transform.numbers(values, offsets))
        if place + 1 < len(chain) and any(later.per_sequence for later in chain[place + 1 :]):
            values = transform.apply(values, offsets, in_place=place > 0)
    return tuple(found)


def invert_all(
    chain: Sequence[Transform],
    values: Array,
    *,
    columns: Sequence[str] | None = None,
    numbers: Numbers | None = None,
) -> Array:
    """Take predictions back through the chain of their field, to the units of the source.

    Args:
        chain: The transforms of the field.
        values: Any array whose last axis are the columns; a field of width 0 has no such axis.
        columns: The columns that `values` has, where it has only some of them. Where columns are mixed (PCA, one's
            own), `values` has all results, and these columns of the source come back.
        numbers: What `sequence_numbers` found in the sequences, which are the first axis of `values`; needed where a
            transform is per sequence.

    Returns:
        A new array of float32 or float64: (..., columns), or as `values` without an axis of columns.

    Raises:
        LowtideError: A column is not there, the array has another number of columns, or numbers are missing.
    """
    given = np.asarray(values)
    back = working_copy(given, in_place=False)
    if not chain:
        return back
    source, results, scalar = chain[0].columns, chain[-1].results, chain[0].scalar
    mixed = not all(transform.columnwise for transform in chain)
    wanted = source if columns is None else tuple(columns)
    missing = [name for name in wanted if name not in source]
    have = results if mixed else wanted
    if missing or (scalar and columns is not None) or (not scalar and back.shape[-1:] != (len(have),)):
        raise _not_invertible(
            chain[0].field,
            f"an array of shape {given.shape} was given for {'the results' if mixed else 'the columns'} {list(have)}",
            f"name the columns that the array has, of {list(source)}" if not mixed else "give all results",
        )
    if any(transform.per_sequence for transform in chain) and numbers is None:
        raise _not_invertible(
            chain[0].field,
            "each sequence was scaled by numbers of its own, which were not given",
            "give numbers=, from sequence_numbers of the same steps",
        )
    back = back[..., np.newaxis] if scalar else back
    for transform, found in zip(reversed(chain), reversed(numbers or (None,) * len(chain)), strict=True):
        back = transform.inverted(back, transform.results if mixed else have, found)
    if mixed:
        back = np.ascontiguousarray(back[..., [source.index(name) for name in wanted]])
    return back[..., 0] if scalar else back


def _read(told: Mapping[str, Any], before: tuple[Transform, ...], schema: Schema) -> Transform:
    if told["version"] != VERSION:
        raise ValueError(f"version {told['version']!r}, where this Lowtide reads version {VERSION}")
    if told["kind"] not in _KINDS:
        raise ValueError(f"there is no kind {told['kind']!r}")
    columns, chosen = tuple(told["columns"]), tuple(told["chosen"])
    field = schema.field(told["field"])
    expected, _ = results_of(schema, before, field.name)
    if columns != expected or not set(chosen) <= set(columns) or not 0 < len(set(chosen)) == len(chosen):
        raise ValueError(f"columns {columns} and {chosen} do not fit the field's {expected}")
    if not field.dtype.startswith(("float", "bfloat")):
        raise ValueError(f"the field {field.name!r} holds {field.dtype}")
    begun = Begun(field.name, columns, chosen, scalar=not field.width)
    return _KINDS[told["kind"]].of(begun, told["numbers"])


def _not_invertible(field: str, what: str, fix: str) -> LowtideError:
    return LowtideError(
        what=f"values of the field {field!r} cannot be turned back: {what}",
        why="every column goes back by the numbers of its own transform",
        fix=fix,
    )
