"""How DuckDB reads a column whose values a field holds."""

from __future__ import annotations

from lowtide.data.ingestion.field_plan import FieldPlan
from lowtide.data.ingestion.sources.column import ColumnType
from lowtide.data.ingestion.sources.duck import name

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
    return "DOUBLE" if told.told in _FLOATS else "BIGINT"


def expression(plan: FieldPlan, column: str, told: ColumnType) -> str:
    """The column in SQL, in a type that `dtypes.cast` takes with the least work.

    Missing floating-point numbers come as NaN, so that no column needs a mask; what is too large comes as infinity, so
    that whoever finds it can say where it is.
    """
    quoted = name(column)
    if plan.kind == "category":
        return f"CAST({quoted} AS VARCHAR)"
    if plan.field.storage.kind == "f" or plan.field.dtype == "bfloat16":
        wanted = _float(plan)
        nan = f"CAST('nan' AS {wanted})"
        if told.told == wanted:
            return f"coalesce({quoted}, {nan})"
        if told.told == "DOUBLE" and wanted == "FLOAT":
            infinite = f"CASE WHEN {quoted} IS NULL THEN {nan} ELSE CAST('inf' AS FLOAT) END"
            return f"coalesce(TRY_CAST({quoted} AS FLOAT), {infinite})"
        return f"coalesce(CAST({quoted} AS {wanted}), {nan})"
    if told.told in _SMALL or told.told in _FLOATS:
        return quoted
    return f"CAST({quoted} AS {'DOUBLE' if told.told.startswith('DECIMAL') else 'BIGINT'})"


def _float(plan: FieldPlan) -> str:
    return "DOUBLE" if plan.field.dtype == "float64" else "FLOAT"
