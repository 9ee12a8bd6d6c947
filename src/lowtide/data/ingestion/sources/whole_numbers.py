"""Whole numbers in SQL, refused where DuckDB would round them: of "7.5" it makes the BIGINT 8, and of "007" 7.

Types of text files are guessed from their first rows, so a column of whole numbers may well go on with others. Where
whole numbers matter, it is read as text, and a value that is none ends the query with an error.
"""

from __future__ import annotations

NOT_WHOLE = "Not a whole number"
"""How the error begins; the value follows, in double quotes."""


def refusing(value: str, unfit: str) -> str:
    """A value as BIGINT; an error where it is unfit."""
    told = f"'{NOT_WHOLE}: \"' || CAST({value} AS VARCHAR) || '\"'"
    return f"CASE WHEN {unfit} THEN CAST(error({told}) AS BIGINT) ELSE TRY_CAST({value} AS BIGINT) END"


def no_whole(value: str) -> str:
    """Whether a text or number is there and no whole number."""
    whole = f"CAST(TRY_CAST({value} AS BIGINT) AS DOUBLE) = TRY_CAST({value} AS DOUBLE)"
    return f"({value} IS NOT NULL AND NOT coalesce({whole}, false))"


def no_name(value: str) -> str:
    """Whether a text is there and not how a whole number is written: "007" and "7.0" are other names than "7"."""
    plain = f"CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR)"
    return f"({value} IS NOT NULL AND NOT coalesce({plain} = {value} OR {plain} = trim({value}), false))"
