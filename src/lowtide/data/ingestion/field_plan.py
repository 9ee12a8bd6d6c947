"""Which fields the store gets, and which columns of the source each is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from lowtide.data.fields import Field, StoredType
from lowtide.data.ingestion.dtypes import BFLOAT16_MOST
from lowtide.data.ingestion.missing import Policy
from lowtide.data.ingestion.request import Feature, Request, Wanted, flat
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.errors import LowtideError

Kind = Literal["number", "category", "codes"]
Layout = Literal["long", "list", "wide"]

CATEGORY = "category"
KEY_TYPES = ("text", "int64", "float64", "timestamp")
"""What `dtypes` may say of the sequence and order columns."""
_CODES: StoredType = "int32"


@dataclass(frozen=True)
class FieldPlan:
    """One field of the store, and where it comes from."""

    field: Field
    kind: Kind
    """Numbers, categories that become codes, or codes as they are."""
    features: tuple[Feature, ...] = ()
    """The source's columns, one a feature; in a wide table, the columns of all steps."""
    policies: tuple[Policy, ...] = ()
    """What becomes of missing values, one a feature."""
    shifted_from: str | None = None
    """The field whose values, some steps ahead, these are."""

    @property
    def columns(self) -> list[str]:
        """All of the source's columns."""
        return flat(self.features)


def plan_fields(request: Request, columns: Mapping[str, ColumnType], layout: Layout) -> tuple[FieldPlan, ...]:
    """Plan all fields, in the order of the store: inputs, targets, static.

    Args:
        request: What was asked for.
        columns: What the source has.
        layout: How its rows lie.

    Raises:
        LowtideError: A column is not there, or cannot be what it is asked for.
    """
    plans = [plan for wanted in request.wanted for plan in _planned(request, wanted, columns, layout)]
    plans += shifted_inputs(request, plans)
    check_names_used(request, columns, plans)
    return tuple(plans)


def shifted_inputs(request: Request, plans: Sequence[FieldPlan]) -> list[FieldPlan]:
    """The targets that are inputs shifted into the future, where a horizon was asked for and no target."""
    if not request.horizon or any(plan.field.role == "targets" for plan in plans):
        return []
    sources = [plan for plan in plans if plan.field.role == "inputs" and plan.field.per == "step"]
    names = ["y"] if len(sources) == 1 else [f"y_{plan.field.name}" for plan in sources]
    return [
        replace(plan, field=replace(plan.field, name=name, role="targets"), shifted_from=plan.field.name)
        for name, plan in zip(names, sources, strict=True)
    ]


def required(name: str, columns: Mapping[str, ColumnType], asked_by: str) -> ColumnType:
    """The type of a column that must be there.

    Raises:
        LowtideError: It is not.
    """
    if name in columns:
        return columns[name]
    close = [column for column in columns if column.strip().lower() == name.strip().lower()]
    raise LowtideError(
        what=f"{asked_by} names the column {name!r}, which the source does not have",
        why=f"its columns are {some(list(columns))}",
        fix=f"did you mean {close[0]!r}?" if close else "use one of these names",
    )


def some(names: Sequence[str], most: int = 20) -> str:
    """Names to be read: all, or the first and how many there are."""
    told = ", ".join(map(repr, names[:most]))
    return told if len(names) <= most else f"{told} and {len(names) - most} more"


def _planned(request: Request, wanted: Wanted, columns: Mapping[str, ColumnType], layout: Layout) -> list[FieldPlan]:
    features = wanted.features
    nested = [feature for feature in features if not isinstance(feature, str)]
    if layout == "wide" and wanted.per == "step":
        if not nested:
            features = (tuple(flat(features)),)
        elif len(nested) < len(features) or len({len(feature) for feature in nested}) > 1:
            raise _unplanned(
                wanted, "some features have other steps", "give each feature as many columns as the others"
            )
    elif nested:
        raise _unplanned(
            wanted, f"{features!r} are lists of columns", 'write layout="wide", or name one column a feature'
        )
    kinds = [_kind(request, wanted, feature, columns) for feature in features]
    if wanted.scalar or "category" not in kinds:
        return [_plan(request, wanted, wanted.name, features, kinds[0], columns, layout)]
    if not wanted.plain:
        if len(features) == 1:
            return [_plan(request, replace(wanted, scalar=True), wanted.name, features, kinds[0], columns, layout)]
        named = next(feature for feature, kind in zip(features, kinds, strict=True) if kind == "category")
        raise _unplanned(
            wanted,
            f"{named!r} holds text, and shares the field",
            f'give it a field of its own: {{"{named}": "{named}"}}',
        )
    numbers = tuple(feature for feature, kind in zip(features, kinds, strict=True) if kind == "number")
    together = [_plan(request, wanted, wanted.name, numbers, "number", columns, layout)] if numbers else []
    alone = [feature for feature, kind in zip(features, kinds, strict=True) if kind == "category"]
    if len(features) == 1 and wanted.role == "targets":
        return [_plan(request, replace(wanted, scalar=True), wanted.name, features, "category", columns, layout)]
    return together + [
        _plan(request, replace(wanted, scalar=True), flat([feature])[0], (feature,), "category", columns, layout)
        for feature in alone
    ]


def _kind(request: Request, wanted: Wanted, feature: Feature, columns: Mapping[str, ColumnType]) -> Kind:
    kinds = set()
    for name in flat([feature]):
        kind = required(name, columns, _argument(wanted)).kind
        asked = request.dtypes.get(name, "" if wanted.plain else request.dtypes.get(wanted.name, ""))
        if asked == CATEGORY:
            kinds.add("category")
        elif kind in {"number", "text"}:
            kinds.add("number" if kind == "number" or asked in get_args(StoredType) else "category")
        else:
            raise _unplanned(
                wanted,
                f"{name!r} is of type {columns[name].told}",
                "convert it to a number in the source: hours since the first step, for instance"
                if kind == "time"
                else "convert it to numbers or text in the source",
            )
    if len(kinds) > 1:
        raise _unplanned(wanted, f"the columns of {feature!r} are numbers and text", "convert them to one of the two")
    return "category" if kinds == {"category"} else "number"


def _plan(
    request: Request,
    wanted: Wanted,
    name: str,
    features: tuple[Feature, ...],
    kind: Kind,
    columns: Mapping[str, ColumnType],
    layout: Layout,
) -> FieldPlan:
    width = 0 if wanted.scalar else len(features)
    if layout == "list" and wanted.per == "step":
        width = _list_width(wanted, features, columns, width)
    told = tuple(feature if isinstance(feature, str) else feature[0] for feature in features)
    if len(told) != max(1, width):
        told = tuple(f"{told[0]}[{place}]" for place in range(width))
    policies = tuple(request.missing.of(name, column) for column in told)
    dtype = _dtype(request, wanted, name, flat(features), kind)
    for column, policy in zip(told, policies, strict=True):
        policy_fits(wanted, column, kind, dtype, policy)
    vocabulary = name if kind == "category" else None
    return FieldPlan(Field(name, wanted.role, wanted.per, dtype, width, told, vocabulary), kind, features, policies)


def _list_width(wanted: Wanted, features: tuple[Feature, ...], columns: Mapping[str, ColumnType], width: int) -> int:
    depths = {columns[name].depth for name in flat(features)}
    if depths == {2} and len(features) == 1:
        found = columns[flat(features)[0]].width
        if found is None:
            raise _unplanned(wanted, f"{features[0]!r} holds empty lists alone", "name a column that has steps")
        return found
    if depths != {1}:
        raise _unplanned(
            wanted,
            f"{features!r} are not all lists of the steps' values",
            "name columns of lists; one with several values a step stands alone; what has one value a sequence is a "
            "label= or static=",
        )
    return width


def _dtype(request: Request, wanted: Wanted, name: str, columns: Sequence[str], kind: Kind) -> StoredType:
    asked = {request.dtypes[key] for key in (name, *columns) if request.dtypes.get(key, CATEGORY) != CATEGORY}
    if len(asked) > 1:
        raise _unplanned(wanted, f"dtypes= gives {name!r} several types, {sorted(asked)}", "give a field one type")
    default = request.dtypes.get("", "float32") if kind == "number" else _CODES
    dtype = next(iter(asked), default)
    whole = dtype.startswith("int")
    if dtype not in get_args(StoredType) or (kind == "category" and not whole):
        known = [known for known in get_args(StoredType) if kind == "number" or known.startswith("int")]
        raise _unplanned(wanted, f"dtypes= says {dtype!r} of {name!r}", f"write one of {', '.join(map(repr, known))}")
    return dtype  # type: ignore[return-value]  # one of StoredType's own


def policy_fits(wanted: Wanted, column: str, kind: Kind, dtype: str, policy: Policy) -> None:
    """See that a policy for missing values can be followed.

    Raises:
        LowtideError: It cannot.
    """
    wrong = ""
    if kind == "category" and (policy.kind == "mean" or isinstance(policy.value, int | float)):
        wrong = f"{column!r} holds categories, which have no mean and are no numbers"
    elif kind == "number" and isinstance(policy.value, str):
        wrong = f"{column!r} holds numbers, and {policy.value!r} is text"
    elif kind == "number" and dtype.startswith("int") and (policy.kind == "mean" or policy.value != _whole(policy)):
        wrong = f"{column!r} is stored as {dtype}, which holds whole numbers"
    elif kind == "number" and isinstance(policy.value, int | float) and not _fits(policy.value, dtype):
        wrong = f"{column!r} is stored as {dtype}, which does not hold {policy.value}"
    elif wanted.per == "sequence" and policy.kind == "forward":
        wrong = f"{column!r} has one value a sequence: there is none before it"
    if wrong:
        raise _unplanned(wanted, f"missing= says {policy.to_json()!r}, and {wrong}", "choose another policy for it")


def _fits(value: float, dtype: str) -> bool:
    if dtype.startswith("int"):
        return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
    return abs(value) <= (BFLOAT16_MOST if dtype == "bfloat16" else float(np.finfo(dtype).max))


def _whole(policy: Policy) -> object:
    return int(policy.value) if isinstance(policy.value, int | float) else policy.value


def check_names_used(request: Request, columns: Mapping[str, ColumnType], plans: Sequence[FieldPlan]) -> None:
    """See that what `dtypes` and `missing` name is there.

    Raises:
        LowtideError: It is not.
    """
    known = {*columns, *(plan.field.name for plan in plans), ""}
    known |= {column for plan in plans for column in plan.field.columns}
    for argument, names in (("dtypes", set(request.dtypes)), ("missing", set(request.missing.by_name))):
        unknown = sorted(names - known)
        if unknown:
            raise LowtideError(
                what=f"{argument}= names {unknown[0]!r}, which is no field and no column",
                why="what was meant would go without it, without a word",
                fix=f"name one of the fields {some([plan.field.name for plan in plans])}, or one of their columns",
            )


def _argument(wanted: Wanted) -> str:
    return {"inputs": "inputs=", "static": "static="}.get(wanted.role, "target= or label=")


def _unplanned(wanted: Wanted, what: str, fix: str) -> LowtideError:
    return LowtideError(
        what=f"the field {wanted.name!r} ({_argument(wanted)}): {what}",
        why="a field is one array of numbers, or of codes of one vocabulary",
        fix=fix,
    )
