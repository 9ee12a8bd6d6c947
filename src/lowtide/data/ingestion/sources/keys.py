"""The columns that rows are put in order by: the sequence key and the order of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.data.fields import IdType
from lowtide.data.ingestion.field_plan import KEY_TYPES, required
from lowtide.data.ingestion.request import Request
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.data.ingestion.sources.duck import Duck, name, select
from lowtide.data.ingestion.sources.table import Table
from lowtide.data.ingestion.sources.whole_numbers import no_name, no_whole, refusing
from lowtide.errors import LowtideError

_SAMPLE = 1000
_TYPES: Mapping[str, str] = {"text": "VARCHAR", "int64": "BIGINT", "float64": "DOUBLE", "timestamp": "TIMESTAMP"}
_WHOLE = "BIGINT"
_TEXT = "VARCHAR"
# DuckDB takes whole numbers of either sign in JSON for HUGEINT; what is beyond BIGINT is an error when it is read.
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"}
_FLOATS = {"FLOAT", "DOUBLE"}


@dataclass(frozen=True)
class Key:
    """A column to sort by."""

    column: str
    expression: str
    """In SQL, NULL where it is missing."""
    reading_type: str
    """As what a text file's column is best read; "": as it seems to be."""
    id_type: IdType
    """For the sequence: the type of the names."""
    unfit: str = ""
    """In SQL, whether a value is none of the key's; then the expression is an error. "": DuckDB itself sees to it."""


def sequence_key(request: Request, table: Table) -> Key:
    """The key whose values are the names of the sequences.

    Raises:
        LowtideError: There is no such column, or it holds no names.
    """
    column = request.sequence or ""
    told = required(column, table.columns, "sequence=")
    asked = _asked(request, column, ("text", "int64"))
    if told.depth or told.kind == "other":
        raise _unsortable("sequence", column, told, "name a column of numbers or text")
    if asked == "int64" or (not asked and told.told in _INTEGERS):
        if table.types_guessed or told.kind == "text":
            return _refusing(column, no_name(name(column)), "int64")
        if told.told not in _INTEGERS:
            return _refusing(column, no_whole(_known(column, told)), "int64", told)
        return Key(column, f"CAST({name(column)} AS BIGINT)", "", "int64")
    return Key(column, f"CAST({_known(column, told)} AS VARCHAR)", _TEXT, "string")


def order_key(request: Request, table: Table, duck: Duck) -> Key:
    """The key that a sequence's steps are ordered by.

    Raises:
        LowtideError: There is no such column, or its order is not that of time.
    """
    column = request.order or ""
    told = required(column, table.columns, "order=")
    asked = _asked(request, column, KEY_TYPES)
    if told.depth or told.kind == "other":
        raise _unsortable("order", column, told, "name a column of numbers, dates or times")
    if not asked and told.kind == "text":
        if table.types_guessed or not _all_timestamps(column, table, duck):
            raise _unsortable(
                "order",
                column,
                told,
                f'text sorts "10" before "9"; read it as another type: dtypes={{"{column}": "int64"}}, "float64" or '
                f'"timestamp" (2024-01-31 10:00:00); or say "text" where its order is meant',
            )
        asked = "timestamp"
    made = _TYPES.get(asked, "")
    if table.types_guessed and not asked:
        made = _WHOLE if told.told in _INTEGERS else ""
    if told.told == "INTERVAL":
        return Key(column, f"epoch_us({name(column)})", "", "string")
    if made == _WHOLE and (table.types_guessed or told.kind == "text"):
        return _refusing(column, no_whole(name(column)), "string")
    if made == _WHOLE and told.told not in _INTEGERS:
        return _refusing(column, no_whole(_known(column, told)), "string", told)
    plain = f"CAST({name(column)} AS {made})" if made else name(column)
    return Key(column, _not_nan(plain) if (made or told.told) in _FLOATS else plain, made, "string")


def _refusing(column: str, unfit: str, id_type: IdType, told: ColumnType | None = None) -> Key:
    """Whole numbers, of a column that is read as text, or as what it was told to be."""
    value = name(column) if told is None else _known(column, told)
    return Key(column, refusing(value, unfit), _TEXT if told is None else "", id_type, unfit)


def _known(column: str, told: ColumnType) -> str:
    """The column, its NaN missing."""
    return _not_nan(name(column)) if told.told in _FLOATS else name(column)


def _not_nan(value: str) -> str:
    return f"CASE WHEN isnan({value}) THEN NULL ELSE {value} END"


def _asked(request: Request, column: str, allowed: tuple[str, ...]) -> str:
    asked = request.dtypes.get(column, "")
    if asked and asked not in allowed and not any(column in wanted.features for wanted in request.wanted):
        raise LowtideError(
            what=f"dtypes= says {asked!r} of {column!r}, which rows are put in order by",
            why=f"such a column is read as one of {', '.join(map(repr, allowed))}",
            fix="use one of these, or leave it out",
        )
    return asked if asked in allowed else ""


def _all_timestamps(column: str, table: Table, duck: Duck) -> bool:
    """Whether the first texts of a column are dates or times as DuckDB reads them."""
    quoted = name(column)
    first = select({"t": quoted}, table.relation({column: ""}), where=f"{quoted} IS NOT NULL", limit=_SAMPLE)
    rows = duck.rows(select({"all": "count(*)", "times": "count(TRY_CAST(t AS TIMESTAMP))"}, f"({first})"))
    return bool(rows[0][0] == rows[0][1])


def _unsortable(argument: str, column: str, told: ColumnType, fix: str) -> LowtideError:
    return LowtideError(
        what=f"{argument}={column!r} names a column of type {told.told}",
        why="rows are put in order by it",
        fix=fix,
    )
