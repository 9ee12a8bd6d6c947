"""Which fields arrays become: from the names that were asked for, and the shapes of the first sequence's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from lowtide.data.fields import Array, Field, Per, Role, StoredType
from lowtide.data.ingestion.field_plan import (
    CATEGORY,
    FieldPlan,
    Kind,
    check_names_used,
    policy_fits,
    shifted_inputs,
    some,
)
from lowtide.data.ingestion.request import Request, Wanted
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.data.ingestion.sources.row_source import refuse_order
from lowtide.errors import LowtideError

ID = "id"
_AXES = 2
"""Of an array with features: steps and features."""


def plan_arrays(request: Request, first: Mapping[str, Array]) -> tuple[FieldPlan, ...]:
    """Plan all fields.

    Args:
        request: What was asked for; where nothing was, "x" are inputs and "y" targets.
        first: The arrays of one sequence, by name, without its own name.

    Raises:
        LowtideError: An array is not there, cannot be what it is asked for, or was not asked for at all.
    """
    refuse_order(request)
    wanted = request.wanted or _by_default(first)
    used = {str(name) for field in wanted for name in field.features}
    lacking = sorted(used - set(first))
    unused = sorted(set(first) - used)
    if lacking:
        raise LowtideError(
            what=f"{lacking[0]!r} was asked for, and the first sequence does not have it",
            why=f"it has {some(list(first))}",
            fix='yield it, as in {"id": "a", "x": array}, or leave it out of what is asked for',
        )
    if unused:
        raise LowtideError(
            what=f"the first sequence has {unused[0]!r}, and nothing says what that is",
            why='without being asked, "id" is the name, "x" the input and "y" the target',
            fix=f'name all: inputs="x", target="y", static="{unused[0]}"; or do not yield it',
        )
    plans = [_plan(request, field, first) for field in wanted]
    plans += shifted_inputs(request, plans)
    known = {name: ColumnType("other", str(array.dtype)) for name, array in first.items()}
    check_names_used(request, known, plans)
    return tuple(plans)


def gathered(plan: FieldPlan, arrays: Mapping[str, Any]) -> Array:
    """A field's values from the arrays of one sequence, or of several."""
    found = [np.asarray(arrays[name]) for name in plan.columns]
    return found[0] if len(found) == 1 else np.stack(found, axis=-1)


def _by_default(first: Mapping[str, Array]) -> tuple[Wanted, ...]:
    wanted = [Wanted("x", "inputs", "step", ("x",), scalar=True)]
    if "y" in first:
        steps = len(first["x"]) if "x" in first and first["x"].ndim else 0
        per: Per = "step" if first["y"].ndim and len(first["y"]) == steps else "sequence"
        wanted.append(Wanted("y", "targets", per, ("y",), scalar=True))
    return tuple(wanted)


def _plan(request: Request, wanted: Wanted, first: Mapping[str, Array]) -> FieldPlan:
    names = [str(name) for name in wanted.features]
    arrays = [first[name] for name in names]
    axes = 1 if wanted.per == "step" else 0
    for name, array in zip(names, arrays, strict=True):
        most = axes + 1 if len(names) == 1 else axes
        if not axes <= array.ndim <= most:
            raise _shape(wanted.role, wanted.per, name, array, most - axes)
    width = arrays[0].shape[axes] if arrays[0].ndim > axes else 0
    if len(names) > 1:
        width = len(names)
    elif not wanted.scalar and not width:
        width = 1
    kind, dtype = _types(request, wanted, names, arrays)
    if kind == "category" and width:
        raise LowtideError(
            what=f"the field {wanted.name!r} holds text of shape {arrays[0].shape}",
            why="a category is one code a step, or a sequence",
            fix=f'give each its own field, as one-dimensional arrays: {{"{names[0]}": "{names[0]}"}}',
        )
    columns = tuple(names) if len(names) == max(1, width) else tuple(f"{names[0]}{place}" for place in range(width))
    policies = tuple(request.missing.of(wanted.name, column) for column in columns)
    for column, policy in zip(columns, policies, strict=True):
        policy_fits(wanted, column, kind, dtype, policy)
    vocabulary = wanted.name if kind == "category" else None
    field = Field(wanted.name, wanted.role, wanted.per, dtype, width, columns, vocabulary)
    return FieldPlan(field, kind, tuple(names), policies)


def _types(request: Request, wanted: Wanted, names: list[str], arrays: list[Array]) -> tuple[Kind, StoredType]:
    asked = {request.dtypes[key] for key in (wanted.name, *names) if key in request.dtypes}
    text = any(array.dtype.kind in "OU" for array in arrays)
    kind: Kind = "category" if text or CATEGORY in asked else "number"
    asked.discard(CATEGORY)
    dtype = next(iter(asked), request.dtypes.get("", "float32") if kind == "number" else "int32")
    if dtype not in get_args(StoredType) or len(asked) > 1 or (kind == "category" and not dtype.startswith("int")):
        raise LowtideError(
            what=f"dtypes= says {', '.join(map(repr, sorted(asked or {dtype})))} of the field {wanted.name!r}",
            why="a field is stored in one type; codes of categories as whole numbers",
            fix=f"write one of {', '.join(map(repr, get_args(StoredType)))}",
        )
    return kind, dtype  # type: ignore[return-value]  # one of StoredType's own


def _shape(role: Role, per: Per, name: str, array: Array, features: int) -> LowtideError:
    wanted = "(steps,)" if per == "step" else "()"
    wanted += (" or (steps, features)" if per == "step" else " or (features,)") if features else ""
    label = per == "step" and role == "targets" and array.ndim == 0
    return LowtideError(
        what=f"{name!r} has the shape {array.shape} in the first sequence",
        why=f"values per {per} have the shape {wanted}",
        fix=f'name it as label="{name}", which has one value a sequence' if label else "reshape it",
    )
