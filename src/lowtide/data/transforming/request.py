"""What a user may ask for as transforms, made to one list of single requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lowtide.data.fields import Field, Schema
from lowtide.data.transforming.transform import column_names
from lowtide.errors import LowtideError

Requested: TypeAlias = "str | Mapping[str, Any] | list[Any] | tuple[Any, ...] | object"

_OPTIONS: Mapping[str, frozenset[str]] = {
    "standard": frozenset(),
    "minmax": frozenset({"low", "high"}),
    "pca": frozenset({"components"}),
    "per_sequence": frozenset(),
    "log1p": frozenset(),
}
"""The transforms that have a name, and what can be said about each."""


@dataclass(frozen=True)
class Single:
    """One transform of one field."""

    field: Field
    kind: str | object
    """Its name, or an object of the user's own."""
    columns: tuple[str, ...] | None
    """The columns to work on; None: all."""
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.kind if isinstance(self.kind, str) else type(self.kind).__name__


def singles(requested: Requested, schema: Schema) -> list[Single]:
    """Take a request apart.

    Args:
        requested: `{field or column: transforms}`, or transforms alone for every floating-point input. Transforms are
            one or a list, each a name, `{"kind": name, "columns": [...], option: value}`, or an object with
            `partial_fit` and `transform`.
        schema: The store's fields.

    Raises:
        LowtideError: Something in it is not there, or contradicts itself.
    """
    if isinstance(requested, Mapping) and "kind" not in requested:
        return [
            _single(*_field(str(name), schema), wanted)
            for name, several in requested.items()
            for wanted in _listed(several)
        ]
    fields = [field for field in schema.inputs if field.dtype.startswith(("float", "bfloat"))]
    if not fields:
        raise _refused(
            "transforms of the inputs, none of which holds floating-point numbers",
            "name a field, as in {'y': 'standard'}, or leave transforms= out",
        )
    return [_single(field, None, wanted) for field in fields for wanted in _listed(requested)]


def _listed(several: Requested) -> list[Any]:
    return list(several) if isinstance(several, list | tuple) else [several]


def _field(name: str, schema: Schema) -> tuple[Field, tuple[str, ...] | None]:
    """The field of this name, or the one with a column of this name."""
    if any(field.name == name for field in schema.fields):
        return schema.field(name), None
    having = [field for field in schema.fields if name in column_names(field)]
    if len(having) == 1:
        return having[0], (name,)
    raise _refused(
        f"{name!r} is {'a column of several fields' if having else 'no field and no column'}",
        f"name one of the fields {[field.name for field in schema.fields]}, or a column of one of them",
    )


def _single(field: Field, columns: tuple[str, ...] | None, wanted: Requested) -> Single:
    options = {key: value for key, value in wanted.items() if key != "kind"} if isinstance(wanted, Mapping) else {}
    kind = wanted.get("kind") if isinstance(wanted, Mapping) else wanted
    chosen = options.pop("columns", columns)
    if isinstance(chosen, str):
        chosen = (chosen,)
    if chosen is not None and not (isinstance(chosen, list | tuple) and chosen):
        raise _refused(f"columns={chosen!r}", "give a list of column names")
    if isinstance(kind, str):
        _check_options(kind, options)
    elif isinstance(kind, type) or not all(
        callable(getattr(kind, does, None)) for does in ("partial_fit", "transform")
    ):
        raise _refused(f"{kind!r}", f"{_HOW}; an object has partial_fit and transform")
    elif options:
        raise _refused(f"options {sorted(options)} of an object of one's own", "set them in the object itself")
    return Single(field, kind, None if chosen is None else tuple(chosen), options)


_HOW = f"write one of {', '.join(map(repr, _OPTIONS))}, as in" + ' {"x": ["log1p", {"kind": "pca", "components": 8}]}'


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    if kind not in _OPTIONS:
        raise _refused(f"{kind!r}", _HOW)
    unknown = sorted(set(options) - _OPTIONS[kind])
    if unknown:
        raise _refused(f"the option {unknown[0]!r} of {kind!r}", f"it takes {sorted(_OPTIONS[kind]) or 'none'}")
    components = options.get("components")
    if kind == "pca" and (type(components) is not int or components < 1):
        raise _refused(f"'pca' with {components!r} components", 'write {"kind": "pca", "components": 8}')
    low, high = options.get("low", 0), options.get("high", 1)
    if not all(isinstance(bound, int | float) for bound in (low, high)) or not low < high:
        raise _refused(f"'minmax' from {low!r} to {high!r}", "give numbers, the lower one as `low`")


def _refused(what: str, fix: str) -> LowtideError:
    return LowtideError(
        what=f"transforms= asks for what there is not: {what}",
        why="transforms are fitted to columns of the training part, and stored as numbers",
        fix=fix,
    )
