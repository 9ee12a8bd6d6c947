"""How DuckDB reads a column whose values a field holds."""

from __future__ import annotations

from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.data.ingestion.sources.duck import name
from lowtide.data.ingestion.sources.whole_numbers import no_whole, refusing

_SMALL = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_FLOATS = {"FLOAT", "DOUBLE"}


def reading_type(plan: FieldPlan, told: ColumnType) -> str:
    """The type as which a text file's column is best read; "" for the type that it seems to be."""
    if plan.kind == "category":
        return "VARCHAR"
    if told.told == "BOOLEAN":
        return ""
    if plan.field.storage.kind == "f" or plan.field.dtype == "bfloat16":
        return _float(plan)
    return "DOUBLE" if told.told in _FLOATS else "VARCHAR"


def row_type(plan: FieldPlan, told: ColumnType) -> str:
    """The same for a column whose values are taken as they are read, lists of them too."""
    if plan.kind == "codes" or told.told.startswith("BOOLEAN"):
        return ""
    if plan.kind == "category":
        return "VARCHAR" + "[]" * told.depth
    whole = plan.field.storage.kind == "i" and plan.field.dtype != "bfloat16"
    return ("DOUBLE" if whole else _float(plan)) + "[]" * told.depth


def expression(plan: FieldPlan, column: str, told: ColumnType) -> str:
    """The column in SQL, in a type that `dtypes.cast` takes with the least work.

    Missing floating-point numbers come as NaN, so that no column needs a mask; what is too large comes as infinity, so
    that whoever finds it can say where it is.
    """
    quoted = name(column)
    if plan.kind == "category":
        return f"CAST({quoted} AS VARCHAR)"
    if plan.field.storage.kind == "f" or plan.field.dtype == "bfloat16":
        return _floating(quoted, _float(plan), told)
    if told.told in _SMALL or told.told in _FLOATS:
        return quoted
    if told.kind == "text":
        return refusing(quoted, no_whole(quoted))
    return f"CAST({quoted} AS {'DOUBLE' if told.told.startswith('DECIMAL') else 'BIGINT'})"


def unfit(plan: FieldPlan, column: str, told: ColumnType) -> str:
    """In SQL, whether a column that is read as text cannot be what its field holds; "" where it can always."""
    quoted = name(column)
    if plan.kind == "category" or told.kind != "text":
        return ""
    if plan.field.storage.kind == "f" or plan.field.dtype == "bfloat16":
        return f"{quoted} IS NOT NULL AND TRY_CAST({quoted} AS DOUBLE) IS NULL"
    return no_whole(quoted)


def _floating(quoted: str, wanted: str, told: ColumnType) -> str:
    nan = f"CAST('nan' AS {wanted})"
    if told.told == wanted:
        return f"coalesce({quoted}, {nan})"
    if told.told == "DOUBLE" and wanted == "FLOAT":
        infinite = f"CASE WHEN {quoted} IS NULL THEN {nan} ELSE CAST('inf' AS FLOAT) END"
        return f"coalesce(TRY_CAST({quoted} AS FLOAT), {infinite})"
    return f"coalesce(CAST({quoted} AS {wanted}), {nan})"


def _float(plan: FieldPlan) -> str:
    return "DOUBLE" if plan.field.dtype == "float64" else "FLOAT"
