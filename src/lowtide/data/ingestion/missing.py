"""Missing values: an error, or dropped or filled as asked; and counted.

A value is missing where a source has none, and where a number is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lowtide.errors import LowtideError

Kind = Literal["error", "drop", "forward", "mean", "value"]

_WORDS = ("error", "drop", "forward", "mean")
_HOW = (
    'write "error", "drop", "forward", "mean", a number, or ["forward", number] for what has no value before it; for '
    'some fields or columns alone {"x": "forward"}; a category to fill in as {"shop": {"value": "unknown"}}'
)


@dataclass(frozen=True)
class Policy:
    """What becomes of the missing values of a column."""

    kind: Kind = "error"
    value: float | str | None = None
    """What is filled in: where `kind` is "value"; and for "forward" where nothing comes before."""

    def to_json(self) -> object:
        """A plain value."""
        return self.kind if self.value is None else [self.kind, self.value]


@dataclass(frozen=True)
class Missing:
    """The policies of all columns."""

    by_name: Mapping[str, Policy]
    """Of fields or columns."""
    others: Policy = Policy()

    def of(self, field: str, column: str) -> Policy:
        """The policy of a field's column; what names the column goes before what names the field."""
        return self.by_name.get(column, self.by_name.get(field, self.others))


def read_missing(told: object) -> Missing:
    """Read the argument `missing` of `ingest`.

    Raises:
        LowtideError: It is no policy.
    """
    if isinstance(told, Missing):
        return told
    if isinstance(told, Mapping) and set(told) != {"value"}:
        policies = {str(name): _policy(policy) for name, policy in told.items()}
        return Missing({name: policy for name, policy in policies.items() if name}, policies.get("", Policy()))
    return Missing({}, _policy(told))


def _policy(told: Any) -> Policy:  # noqa: ANN401 - whatever the user gave
    if isinstance(told, Policy):
        return told
    if isinstance(told, str) and told in _WORDS:
        return Policy(told)  # type: ignore[arg-type]  # one of Kind's own
    if _is_number(told):
        return Policy("value", told)
    if (
        isinstance(told, Mapping)
        and set(told) == {"value"}
        and (isinstance(told["value"], str) or _is_number(told["value"]))
    ):
        return Policy("value", told["value"])
    if isinstance(told, Sequence) and not isinstance(told, str) and len(told) == 2 and told[0] == "forward":  # noqa: PLR2004 - and a value
        filled = _policy(told[1] if not isinstance(told[1], str) else {"value": told[1]})
        if filled.kind == "value":
            return Policy("forward", filled.value)
    raise LowtideError(
        what=f"missing={told!r} is no policy",
        why="missing values are an error unless it is said what becomes of them",
        fix=_HOW,
    )


def _is_number(told: object) -> bool:
    return isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told)
