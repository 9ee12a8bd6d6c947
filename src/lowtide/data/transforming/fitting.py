"""Fitting a transform in one pass over the training part, a block of steps at a time.

What a block holds follows from the part's own lengths alone: data that belong to another part move no number, not even
in its last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lowtide.data.fields import Array, Field
from lowtide.data.transforming.affine import Affine, MinMax, Standard
from lowtide.data.transforming.logarithm import Log1p
from lowtide.data.transforming.own import Own, copied
from lowtide.data.transforming.per_sequence import PerSequence
from lowtide.data.transforming.principal import Principal
from lowtide.data.transforming.request import Single
from lowtide.data.transforming.transform import Begun, Transform, column_names, name_column, refused
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.view import View

_NUMBERS = 1 << 20
"""Numbers in a block: 8 MB as float64."""
_SEQUENCES = 1 << 16
"""Sequences looked at together."""


def fitted(single: Single, earlier: tuple[Transform, ...], view: View) -> Transform:
    """Fit one transform.

    Args:
        single: What is asked for.
        earlier: The transforms that its field goes through before.
        view: The training part.

    Raises:
        LowtideError: The data cannot be transformed so.
    """
    begun = _begun(single, earlier)
    if isinstance(single.kind, str):
        return _FITS[single.kind](single, begun, _chosen_blocks(single, begun, earlier, view))
    return _fit_own(single.kind, begun, _chosen_blocks(single, begun, earlier, view))


def _begun(single: Single, earlier: tuple[Transform, ...]) -> Begun:
    field = single.field
    columns = earlier[-1].results if earlier else column_names(field)
    chosen = columns if single.columns is None else single.columns
    missing = [name for name in chosen if name not in columns]
    for wrong, what, fix in [
        (
            not field.dtype.startswith(("float", "bfloat")),
            f"it is stored as {field.dtype}",
            "codes need an embedding, no transform"
            if field.vocabulary is not None
            else f'store it as floating point: dtypes={{"{field.name}": "float32"}}',
        ),
        (bool(missing), f"it has no column {missing[:1]}", f"its columns are {list(columns)}"),
        (len(set(chosen)) < len(chosen), "a column is named twice", "name each column once"),
        (
            single.kind == "per_sequence" and field.per == "sequence",
            "it has one value a sequence",
            'write "standard", which scales it over all sequences',
        ),
        (
            any(transform.per_sequence for transform in earlier),
            "it comes behind 'per_sequence'",
            "put 'per_sequence' last: numbers of the training part mean little behind it",
        ),
        (
            not field.width and not isinstance(single.kind, str),
            "it has no axis of columns",
            "name its column as a list",
        ),
        (single.kind == "pca" and not field.width, "it is a single column", "leave it out"),
    ]:
        if wrong:
            raise refused(single.name, field.name, what, fix)
    return Begun(field.name, columns, chosen, scalar=not field.width)


Blocks = Iterator[NDArray[np.float64]]


def _fit_standard(_: Single, begun: Begun, blocks: Blocks) -> Affine:
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - slow to import, and only wanted here

    scaler = StandardScaler()
    for block in blocks:
        scaler.partial_fit(block)
    if not np.isfinite(scaler.var_).all():
        raise refused("standard", begun.field, "the square of its deviation exceeds float64", "scale it at the source")
    return Standard.fitted(begun, scaler.mean_, scaler.scale_, 0.0)


def _fit_minmax(single: Single, begun: Begun, blocks: Blocks) -> Affine:
    from sklearn.preprocessing import MinMaxScaler  # noqa: PLC0415 - slow to import, and only wanted here

    low, high = float(single.options.get("low", 0)), float(single.options.get("high", 1))
    scaler = MinMaxScaler(feature_range=(low, high))
    for block in blocks:
        scaler.partial_fit(block)
    return MinMax.fitted(begun, scaler.data_min_, 1 / scaler.scale_, low)


def _fit_pca(single: Single, begun: Begun, blocks: Blocks) -> Principal:
    from sklearn.decomposition import IncrementalPCA  # noqa: PLC0415 - slow to import, and only wanted here

    components, width = single.options["components"], len(begun.chosen)
    if components > width:
        raise refused("pca", begun.field, f"{components} components of {width} columns", f"ask for at most {width}")
    pca = IncrementalPCA(n_components=components)
    rows = 0
    for block in of_at_least(blocks, max(components, 5 * width)):
        rows += len(block)
        if rows < components:
            raise refused(
                "pca", begun.field, f"{components} components of {rows} steps", "train on more, or ask for fewer"
            )
        pca.partial_fit(block)
    return Principal(begun.field, begun.columns, begun.chosen, begun.scalar, pca.mean_, pca.components_)


def _fit_log1p(_: Single, begun: Begun, blocks: Blocks) -> Log1p:
    transform = Log1p(begun.field, begun.columns, begun.chosen, begun.scalar)
    alone = Log1p(begun.field, begun.chosen, begun.chosen, scalar=False)
    for block in blocks:
        alone.apply(block, in_place=True)  # to see that it can be done
    return transform


def _fit_per_sequence(_: Single, begun: Begun, blocks: Blocks) -> PerSequence:
    for _block in blocks:
        pass  # to see that all numbers are finite
    return PerSequence(begun.field, begun.columns, begun.chosen, begun.scalar)


def _fit_own(given: object, begun: Begun, blocks: Blocks) -> Own:
    made = copied(given)
    few = np.empty((0, len(begun.chosen)))
    for block in blocks:
        made.partial_fit(block)
        few = block[:2] if not len(few) else few
    shape = np.asarray(made.transform(few)).shape
    if len(shape) != few.ndim or shape[0] != len(few) or not shape[1]:
        raise refused(
            type(made).__name__,
            begun.field,
            f"its transform makes shape {shape} of shape {few.shape}",
            "make one row out of every row: (steps, columns)",
        )
    return Own.fitted(begun, made, shape[1])


_FITS: dict[str, Callable[[Single, Begun, Blocks], Transform]] = {
    "standard": _fit_standard,
    "minmax": _fit_minmax,
    "pca": _fit_pca,
    "log1p": _fit_log1p,
    "per_sequence": _fit_per_sequence,
}


def _chosen_blocks(single: Single, begun: Begun, earlier: tuple[Transform, ...], view: View) -> Blocks:
    """The columns to fit, behind the transforms before, in float64; steps that are none are refused."""
    any_steps = False
    every = len(begun.chosen) == len(begun.columns)
    for read, rows in blocks_of(view, single.field):
        block = read.reshape(len(read), max(1, single.field.width)).astype(np.float64)
        finite = np.isfinite(block)
        if not finite.all():
            raise _not_finite(single, view, block, finite, rows)
        for transform in earlier:
            shaped = block[:, 0] if transform.scalar else block
            block = transform.apply(shaped, in_place=True).reshape(len(block), len(transform.results))
        any_steps = any_steps or bool(len(block))
        if len(block):
            yield block if every else block[:, begun.places]
    if not any_steps:
        raise refused(single.name, begun.field, "the training part has no steps", "train on more: split=")


def blocks_of(view: View, field: Field) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """The field's values, with the number of the sequence that each step belongs to."""
    most = max(1, _NUMBERS // max(1, field.width))
    for first in range(0, len(view), _SEQUENCES):
        rows = np.arange(first, min(first + _SEQUENCES, len(view)))
        if field.per == "sequence":
            for some in np.split(rows, range(most, len(rows), most)):
                yield field.values(view.read_static(field.name, some)), some
            continue
        for some, starts, stops in _groups(rows, np.asarray(view.lengths[first : first + _SEQUENCES]), most):
            values, offsets = view.read(field.name, some, starts, stops)
            yield field.values(values), np.repeat(some, np.diff(offsets))


def _groups(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], most: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Sequences that have at most so many steps together, as rows, starts and stops; a longer one alone, in parts."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + most, side="right"))
        if last > first:
            yield rows[first:last], np.zeros(last - first, dtype=np.int64), lengths[first:last]
            first = last
            continue
        length = int(lengths[first])
        for start in range(0, length, most):
            yield rows[first : first + 1], np.array([start]), np.array([min(start + most, length)])
        first += 1


def of_at_least(blocks: Blocks, rows: int) -> Blocks:
    """The same steps in blocks of at least so many; fewer only where there are not more at all."""
    waiting: list[NDArray[np.float64]] = []
    ready: NDArray[np.float64] | None = None
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= rows:
            if ready is not None:
                yield ready
            ready, waiting = np.concatenate(waiting), []
    if ready is not None:
        waiting.insert(0, ready)
    if waiting:
        yield np.concatenate(waiting)


def _not_finite(
    single: Single, view: View, block: NDArray[np.float64], finite: NDArray[np.bool_], rows: NDArray[np.int64]
) -> LowtideError:
    step = int(np.argwhere(~finite)[0][0])
    named: Any = view.ids.take(rows[step : step + 1])[0].as_py()
    found = name_column(block, ~finite, column_names(single.field))
    return refused(
        single.name,
        single.field.name,
        f"the column {found} in the sequence {named!r} of the training part",
        'fill or drop what is missing: missing="forward", or another policy of ingest',
    )
