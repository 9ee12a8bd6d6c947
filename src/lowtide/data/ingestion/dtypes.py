"""Numbers in the types that they are stored in, refused where they do not fit; and what float16 would save.

Missing values are told apart from numbers here: NaN where the source has floating point, nulls where it has Arrow
columns. bfloat16 stays float32 until it is written (`stored`), since NumPy has no such type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowtide.data.fields import Array, Field, to_bfloat16
from lowtide.data.ingestion.sources.chunk import Mask

BFLOAT16_MOST = 3.3895e38
"""What bfloat16 goes up to."""
_BLOCK = 1 << 16
_HALF_BITS = 12
"""Below 2**k in magnitude, rounding to float16 errs by at most 2**(k - 12), or by 2**-25 near zero."""
_HALF_LEAST = 2.0**-25


class UnfitError(Exception):
    """A value that its field cannot hold; whoever knows where the values come from says so."""

    def __init__(self, row: int, feature: int, what: str, why: str, fix: str) -> None:
        """Keep where it is: the row and the feature of the values that were cast."""
        super().__init__(row, feature, what, why, fix)
        self.row = row
        self.feature = feature
        self.what = what
        self.why = why
        self.fix = fix


def cast(raw: Array | list[pa.Array], field: Field) -> tuple[Array, Mask | None]:
    """Bring numbers into a field's type and shape.

    Args:
        raw: (n,) or (n, width) of any numeric type, or one Arrow column a feature.
        field: What they are stored as.

    Returns:
        The numbers, (n,) or (n, width), bfloat16 as float32; and which are missing, None where none is.

    Raises:
        UnfitError: A number is infinite, too large, or no whole number where whole numbers are stored.
    """
    values, missing = _side_by_side(raw, field) if isinstance(raw, list) else (np.asarray(raw), None)
    values = values.reshape((len(values), *field.step_shape))
    if values.dtype.kind not in "fiub":
        raise UnfitError(
            0,
            0,
            f"values of type {values.dtype}",
            "a field holds real numbers, or codes of a vocabulary",
            "convert them to numbers",
        )
    if field.storage.kind == "i" and field.dtype != "bfloat16":
        return _whole(values, missing, field)
    return _floating(values, missing, field)


def stored(values: Array, field: Field) -> Array:
    """The numbers as they lie on disk."""
    return to_bfloat16(values).reshape(values.shape) if field.dtype == "bfloat16" else values


def _side_by_side(columns: Sequence[pa.Array], field: Field) -> tuple[Array, Mask | None]:
    """Columns interleaved to (n, features), nulls as NaN or, among whole numbers, as 0 with a mask."""
    arrays, masks = [], []
    for column in columns:
        numbers, mask = _numbers(column)
        arrays.append(numbers)
        masks.append(mask)
    if not field.width:
        return arrays[0], masks[0]
    missing = None
    if any(mask is not None for mask in masks):
        none = np.zeros(len(arrays[0]), dtype=np.bool_)
        missing = np.stack([none if mask is None else mask for mask in masks], axis=1)
    return np.stack(arrays, axis=1), missing


def _numbers(column: pa.Array) -> tuple[Array, Mask | None]:
    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.int8() if pa.types.is_boolean(column.type) else pa.float64())
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), None
    if pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False), None  # nulls come out as NaN
    mask = column.is_null().to_numpy(zero_copy_only=False)
    zero = pa.scalar(0, column.type) if pa.types.is_integer(column.type) else None
    return (pc.fill_null(column, zero) if zero is not None else column).to_numpy(zero_copy_only=False), mask


def _floating(values: Array, missing: Mask | None, field: Field) -> tuple[Array, Mask | None]:
    wanted = np.dtype(np.float32) if field.dtype == "bfloat16" else field.storage
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(wanted, copy=False)
        # One pass settles nearly every block: a sum is finite only where all that was added is.
        if missing is None and field.dtype != "bfloat16" and np.isfinite(made.sum(dtype=np.float32)):
            return made, None
    absent = np.isnan(made)
    if missing is not None:
        absent |= missing
        made = np.where(absent, wanted.type(np.nan), made)
    infinite = np.isinf(made)
    if field.dtype == "bfloat16":
        infinite = (to_bfloat16(made) & np.uint16(0x7FFF)) == 0x7F80  # noqa: PLR2004 - bfloat16's infinity
    if infinite.any():
        raise _infinite(values, infinite, field)
    return made, absent if absent.any() else None


def _whole(values: Array, missing: Mask | None, field: Field) -> tuple[Array, Mask | None]:
    limits = np.iinfo(field.storage)
    if values.dtype.kind == "f":
        absent = np.isnan(values)
        missing = absent if missing is None else absent | missing
        values = np.where(missing, 0, values)
        broken = values != np.rint(values)
        if broken.any():
            row, feature = _first(broken)
            raise UnfitError(
                row,
                feature,
                f"{_at(values, row, feature)} is no whole number, and {field.name!r} is stored as {field.dtype}",
                "what is behind the point would be lost",
                f'store it as floating point: dtypes={{"{field.name}": "float32"}}',
            )
        outside = (values < float(limits.min)) | (values >= float(limits.max) + 1)
    elif values.dtype == np.uint64:
        outside = values > np.uint64(limits.max)
    else:
        fits = not values.size or (limits.min <= int(values.min()) and int(values.max()) <= limits.max)
        outside = np.zeros(1, dtype=np.bool_) if fits else (values < limits.min) | (values > limits.max)
    if outside.any():
        row, feature = _first(outside)
        raise _too_large(_at(values, row, feature), field, row, feature)
    return values.astype(field.storage, copy=False), missing if missing is not None and missing.any() else None


def _infinite(values: Array, infinite: NDArray[np.bool_], field: Field) -> UnfitError:
    row, feature = _first(infinite)
    value = _at(values, row, feature)
    if np.isfinite(value):
        return _too_large(value, field, row, feature)
    return UnfitError(
        row,
        feature,
        f"{field.name!r} is infinite, or larger than {field.dtype} holds",
        "one infinite value makes every loss and gradient NaN",
        "correct the value, or remove it, so that it counts as missing"
        + (f'; dtypes={{"{field.name}": "float64"}} holds larger ones' if field.dtype != "float64" else ""),
    )


def _too_large(value: Any, field: Field, row: int, feature: int) -> UnfitError:  # noqa: ANN401 - a NumPy scalar
    most = BFLOAT16_MOST if field.dtype == "bfloat16" else _most(field.storage)
    wider = "float32" if field.dtype == "float16" else "int64" if field.dtype.startswith("int") else "float64"
    return UnfitError(
        row,
        feature,
        f"{value} does not fit {field.dtype}, which goes up to {most:g}, in the field {field.name!r}",
        "it would become infinite, or another number",
        f'store it wider: dtypes={{"{field.name}": "{wider}"}}; or scale the column down in the source',
    )


def _most(dtype: np.dtype[Any]) -> float:
    return float(np.iinfo(dtype).max if dtype.kind == "i" else np.finfo(dtype).max)


def _first(wrong: NDArray[np.bool_]) -> tuple[int, int]:
    row = int(np.argmax(wrong if wrong.ndim == 1 else wrong.any(axis=1)))
    return row, 0 if wrong.ndim == 1 else int(np.argmax(wrong[row]))


def _at(values: Array, row: int, feature: int) -> Any:  # noqa: ANN401 - a NumPy scalar
    return values[row] if values.ndim == 1 else values[row, feature]


@dataclass
class HalfReport:
    """What storing a field as float16 would save, and the largest error that it would make."""

    field: str
    bytes: int = 0
    """Bytes that it would save."""
    error: float = 0.0
    """The largest difference that rounding would make."""
    at: float = 0.0
    """The number at which it would."""
    overflows: bool = False
    """Whether a number would not fit at all."""

    def look(self, values: NDArray[np.float32]) -> None:
        """Take some more numbers into account."""
        numbers = values.reshape(-1)
        self.bytes += 2 * len(numbers)
        for start in range(0, len(numbers), _BLOCK):
            if self.overflows:
                return
            self._look(numbers[start : start + _BLOCK])

    def _look(self, block: NDArray[np.float32]) -> None:
        magnitude = np.abs(block)
        if self.error >= _HALF_LEAST:
            # Only numbers beyond this can beat the largest error so far: few, after the first blocks.
            block = block[magnitude >= 2.0 ** (np.floor(np.log2(self.error)) + _HALF_BITS)]
            if not len(block):
                return
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(block.astype(np.float16).astype(np.float32) - block)
        place = int(np.argmax(errors))
        if not np.isfinite(errors[place]):
            self.overflows = True
        elif errors[place] > self.error:
            self.error, self.at = float(errors[place]), float(block[place])

    def line(self) -> str:
        """To be read."""
        if self.overflows:
            return f"{self.field!r} holds numbers beyond float16's 65504: it stays float32"
        return (
            f"{self.field!r} as float16 would save {self.bytes / 1e6:,.1f} MB; largest error {self.error:.3g}, at "
            f'{self.at:.6g} (dtypes={{"{self.field}": "float16"}})'
        )
