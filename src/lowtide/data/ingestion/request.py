"""What `ingest` is asked for: its arguments, checked as far as that goes without looking at the data."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from lowtide.data.fields import Per, Role
from lowtide.data.ingestion.missing import Missing, read_missing
from lowtide.errors import LowtideError

Layout = Literal["auto", "long", "series", "list", "wide", "text"]
Duplicates = Literal["error", "first", "last", "keep"]
Columns: TypeAlias = "str | Sequence[str] | Sequence[Sequence[str]] | Mapping[str, str | Sequence[str]]"
Feature: TypeAlias = "str | tuple[str, ...]"
"""A column; in a wide table the columns of all steps."""

LEAST_MEMORY = 288 << 20
DEFAULT_MEMORY = 400 << 20
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_TEXT_POLICIES = ("errors", "empty")
_DEFAULT_NAMES: Mapping[Role, str] = {"inputs": "x", "targets": "y", "static": "static"}


@dataclass(frozen=True)
class Wanted:
    """One field, as it was asked for."""

    name: str
    role: Role
    per: Per
    features: tuple[Feature, ...]
    scalar: bool = False
    """Whether it was named as a string: without an axis of features."""
    plain: bool = False
    """Whether it stands in a list without a name of its own, from which columns of categories go to own fields."""


@dataclass(frozen=True)
class TextRequest:
    """How text becomes codes."""

    tokenizer: object
    unit: str | int = "line"
    separator: str | None = None
    errors: str = "strict"
    """What becomes of bytes of a text file that are not of its encoding."""
    empty: str = "drop"
    """What becomes of the blank texts of a text file."""

    @property
    def learnt(self) -> bool:
        """Whether the codes are learnt from the data."""
        return self.tokenizer == "characters" or isinstance(self.tokenizer, Mapping)


@dataclass(frozen=True)
class Request:
    """All that an ingest is asked for, but where the data come from."""

    out: Path
    sequence: str | None
    order: str | None
    wanted: tuple[Wanted, ...]
    layout: Layout
    text: TextRequest | None
    horizon: int
    dtypes: Mapping[str, str]
    """By field or column; "" stands for all others."""
    missing: Missing
    duplicates: Duplicates
    split: Any
    transforms: Any
    memory_limit: int
    shard_bytes: int
    encoding: str
    missing_text: tuple[str, ...]
    decimal: str
    append: bool
    resume: bool

    @property
    def column_names(self) -> set[str]:
        """Every column that is asked for."""
        keys = {name for name in (self.sequence, self.order) if name is not None}
        return keys | {name for wanted in self.wanted for name in flat(wanted.features)}


def read_request(
    out: str | Path,
    *,
    sequence: str | None,
    order: str | None,
    inputs: Columns | None,
    target: Columns | None,
    label: Columns | None,
    static: Columns | None,
    layout: Layout,
    text: object,
    unit: str | int,
    separator: str | None,
    horizon: int,
    dtypes: str | Mapping[str, str] | None,
    missing: object,
    duplicates: Duplicates,
    split: Any,  # noqa: ANN401 - whatever split_rules takes
    transforms: Any,  # noqa: ANN401 - whatever transforms takes
    memory_limit: int | str | None,
    shard_bytes: int | str,
    encoding: str,
    missing_text: Sequence[str],
    decimal: str,
    append: bool,
    resume: bool,
) -> Request:
    """Check the arguments of `ingest`, whose documentation explains them.

    Raises:
        LowtideError: One of them cannot be meant.
    """
    _check_text_format(missing_text, decimal)
    _check_choice("layout", layout, get_args(Layout))
    _check_choice("duplicates", duplicates, get_args(Duplicates))
    _check_encoding(encoding)
    _check_horizon(horizon)
    _check_column("sequence", sequence)
    _check_column("order", order)
    wanted = (
        *_wanted("inputs", inputs, "inputs", "step"),
        *_wanted("target", target, "targets", "step"),
        *_wanted("label", label, "targets", "sequence"),
        *_wanted("static", static, "static", "sequence"),
    )
    return Request(
        out=Path(out),
        sequence=sequence,
        order=order,
        wanted=wanted,
        layout=layout,
        text=None if text is None else _text_request(text, unit, separator),
        horizon=horizon,
        dtypes=_read_dtypes(dtypes),
        missing=read_missing(missing),
        duplicates=duplicates,
        split=split,
        transforms=transforms,
        memory_limit=_read_memory(memory_limit),
        shard_bytes=byte_size(shard_bytes),
        encoding=encoding,
        missing_text=tuple(missing_text),
        decimal=decimal,
        append=append,
        resume=resume,
    )


def _text_request(told: object, unit: str | int, separator: str | None) -> TextRequest:
    """How text becomes codes, and what becomes of text that does not: a tokenizer, or options with one in them."""
    if not isinstance(told, Mapping):
        return TextRequest(told, unit, separator)
    policies = {key: told[key] for key in _TEXT_POLICIES if key in told}
    rest: Mapping[str, object] = {key: value for key, value in told.items() if key not in _TEXT_POLICIES}
    tokenizer = rest["tokenizer"] if set(rest) == {"tokenizer"} else rest
    return TextRequest(tokenizer, unit, separator, **policies)


def byte_size(told: int | str) -> int:
    """A number of bytes, or text such as "400MB" or "1.5 GiB".

    Raises:
        LowtideError: It is neither.
    """
    if type(told) is int and told >= 0:
        return told
    parts = re.fullmatch(r"([0-9.]+)\s*([a-zA-Z]*)", str(told).strip()) if isinstance(told, str) else None
    unit = parts[2].lower().removesuffix("b") if parts else None
    if parts is None or unit not in _UNITS or parts[1].count(".") > 1:
        raise _refused(f"{told!r} bytes", 'give a number of bytes, or text such as "400MB" or "1GiB"')
    return int(float(parts[1]) * _UNITS[unit])


def flat(features: Sequence[Feature]) -> list[str]:
    """All columns of some features."""
    return [name for feature in features for name in ((feature,) if isinstance(feature, str) else feature)]


def _wanted(argument: str, told: Columns | None, role: Role, per: Per) -> list[Wanted]:
    if told is None:
        return []
    if isinstance(told, Mapping):
        if not _are_texts(told):
            raise _refused(
                f"{argument}={dict(told)!r}", f"name its fields by text, as in {argument}={{'x': ['a', 'b']}}"
            )
        return [_one(argument, columns, name, role, per, plain=False) for name, columns in told.items()]
    return [_one(argument, told, _DEFAULT_NAMES[role], role, per, plain=True)]


def _one(argument: str, told: object, name: str, role: Role, per: Per, *, plain: bool) -> Wanted:
    if isinstance(told, str) and told:
        return Wanted(name, role, per, (told,), scalar=True)
    if not isinstance(told, Sequence) or not told or any(not isinstance(each, Sequence) for each in told):
        raise _refused(f"{argument}={told!r}", f"give a column, or a list of columns, as in {argument}=['a', 'b']")
    features = tuple(feature if isinstance(feature, str) else tuple(feature) for feature in told)
    names = flat(features)
    if not _are_texts(names):
        raise _refused(f"{argument}={told!r}", "name columns by text")
    twice = sorted({column for column in names if names.count(column) > 1})
    if twice:
        raise _refused(f"{argument} names the column {twice[0]!r} twice", "name each column once")
    return Wanted(name, role, per, features, plain=plain)


def _are_texts(told: Iterable[object]) -> bool:
    return all(isinstance(text, str) and text for text in told)


def _read_dtypes(told: object) -> Mapping[str, str]:
    if told is None:
        return {}
    if isinstance(told, str):
        return {"": told}
    if isinstance(told, Mapping) and _are_texts([text for pair in told.items() for text in pair]):
        return dict(told)
    raise _refused(f"dtypes={told!r}", 'write dtypes="float16", or dtypes={"x": "float16"}')


def _read_memory(told: int | str | None) -> int:
    if told is None:
        return DEFAULT_MEMORY
    size = byte_size(told)
    if size < LEAST_MEMORY:
        raise LowtideError(
            what=f"memory_limit={told!r} is {size} bytes",
            why=f"sorting, and the buffers of what is read and written, need {LEAST_MEMORY} bytes",
            fix=f'give at least memory_limit="{LEAST_MEMORY >> 20}MiB", or leave it out',
        )
    return size


def _check_horizon(horizon: object) -> None:
    if not isinstance(horizon, int) or isinstance(horizon, bool) or horizon < 0:
        raise _refused(f"horizon={horizon!r}", "give a number of steps, such as horizon=1")


def _check_column(argument: str, told: object) -> None:
    if told is not None and (not isinstance(told, str) or not told):
        raise _refused(f"{argument}={told!r}", f"give the name of one column, as in {argument}='user'")


def _check_choice(argument: str, told: object, choices: Sequence[str]) -> None:
    if told not in choices:
        raise _refused(f"{argument}={told!r}", f"write one of {', '.join(map(repr, choices))}")


def _check_text_format(missing_text: Any, decimal: object) -> None:  # noqa: ANN401 - whatever the user gave
    listed = isinstance(missing_text, Sequence) and not isinstance(missing_text, str)
    if not listed or not all(isinstance(text, str) for text in missing_text):
        raise _refused(f"missing_text={missing_text!r}", 'give a list of texts, as in missing_text=["", "NA"]')
    if decimal not in {".", ","}:
        raise _refused(f"decimal={decimal!r}", 'write "." or ","')


def _check_encoding(encoding: str) -> None:
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError) as error:
        raise _refused(f"encoding={encoding!r}", "name an encoding that Python knows, such as 'cp1252'") from error


def _refused(what: str, fix: str) -> LowtideError:
    return LowtideError(what=f"ingest was asked for {what}", why="it cannot tell what is meant", fix=fix)
