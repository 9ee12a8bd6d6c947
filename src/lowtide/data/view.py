"""Part of a store: some of its sequences, or some steps of each, without copying any.

A store is the view of all of itself, so whatever takes a view takes a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from lowtide.data.disk.ids import Ids
from lowtide.data.fields import Array, Field, Schema
from lowtide.data.frameworks import load
from lowtide.data.sequence import Part, Sequence
from lowtide.errors import LowtideError

if TYPE_CHECKING:
    from lowtide.data.loading.loader import Loader
    from lowtide.data.loading.settings import LoaderOptions
    from lowtide.data.loading.torch_dataset import BatchDataset
    from lowtide.data.store import Store

Counts = NDArray[np.int64]


class View:
    """Sequences of a store, numbered from 0.

    `view[5]` is one sequence; `view[10:20]`, `view[numbers]` and `view[mask]` are views again.
    """

    def __init__(
        self, store: Store, index: Counts | None = None, start: Counts | None = None, stop: Counts | None = None
    ) -> None:
        """Describe a part of a store.

        Args:
            store: The store.
            index: Numbers of its sequences, in the view's order; None: all of them.
            start: The first step of each; None: its first.
            stop: The step behind the last of each; None: its end.
        """
        assert (start is None) == (stop is None)
        self._store = store
        self.index = index
        self.start = start
        self.stop = stop
        self._lengths: Counts | None = None

    @property
    def store(self) -> Store:
        """The store that this is a part of."""
        return self._store

    @property
    def schema(self) -> Schema:
        """The fields of every sequence."""
        return self.store.schema

    @property
    def lengths(self) -> Counts:
        """The steps of every sequence, as many as the view has of it."""
        if self._lengths is None:
            if self.start is not None and self.stop is not None:
                self._lengths = self.stop - self.start
            else:
                lengths = self.store.lengths
                self._lengths = lengths if self.index is None else np.asarray(lengths)[self.index]
        return self._lengths

    @property
    def ids(self) -> Ids:
        """The names of the sequences, read when they are asked for."""
        return self.store.ids_of(self.index)

    @cached_property
    def fingerprint(self) -> str:
        """A name for the content: that of the store, and which part of it this is; made once, of all its numbers."""
        hashed = hashlib.sha256(self.store.fingerprint.encode())
        for part in (self.index, self.start, self.stop):
            hashed.update(b"all" if part is None else np.ascontiguousarray(part).data)
        return hashed.hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.store.lengths) if self.index is None else len(self.index)

    @overload
    def __getitem__(self, key: int) -> Sequence: ...
    @overload
    def __getitem__(self, key: slice | Array | list[int]) -> View: ...
    def __getitem__(self, key: int | slice | Array | list[int]) -> Sequence | View:
        if isinstance(key, int | np.integer):
            number = range(len(self))[int(key)]
            sequence = number if self.index is None else int(self.index[number])
            start = 0 if self.start is None else int(self.start[number])
            stop = int(self.store.lengths[sequence] if self.stop is None else self.stop[number])
            return self.store.sequence(sequence, start, stop)
        if isinstance(key, slice):
            chosen = np.arange(*key.indices(len(self)), dtype=np.int64)
        else:
            chosen = np.arange(len(self), dtype=np.int64)[key]
        if np.ndim(chosen) == 0:
            return self[int(chosen)]
        if np.ndim(chosen) != 1:
            raise LowtideError(
                what=f"a view was indexed with {str(key)[:80]}, which makes an array of {np.ndim(chosen)} axes",
                why="it is a row of sequences",
                fix="give a number, a slice, a list or array of numbers, or a mask of as many truths as sequences",
            )
        return View(
            self.store,
            chosen if self.index is None else self.index[chosen],
            None if self.start is None else self.start[chosen],
            None if self.stop is None else self.stop[chosen],
        )

    def __iter__(self) -> Iterator[Sequence]:
        for number in range(len(self)):
            yield self[number]

    def spans(self, rows: Counts) -> tuple[Counts, Counts, Counts]:
        """Where these sequences of the view lie in the store: numbers of sequences there, first and last steps."""
        sequences = rows if self.index is None else self.index[rows]
        if self.start is None or self.stop is None:
            return sequences, np.zeros(len(rows), dtype=np.int64), np.asarray(self.store.lengths)[sequences]
        return sequences, self.start[rows], self.stop[rows]

    def read(self, field: str, rows: Counts, starts: Counts, stops: Counts) -> tuple[Array, Counts]:
        """Read steps of many sequences of one field at once.

        Args:
            field: The name of a field with values per step.
            rows: Numbers of the view's sequences, in any order, also repeated.
            starts: The first step of each, counted from where the view begins.
            stops: The step behind the last of each.

        Returns:
            All steps one behind the other, (sum of steps, width) or (sum of steps,), in the type on disk (bfloat16 as
            uint16); and where each sequence begins among them, one more than there are sequences.

        Raises:
            LowtideError: A number is out of range, or the store is damaged.
        """
        return self.store.read_steps(field, *self._in_store(rows, starts, stops))

    def fill(
        self, field: str, rows: Counts, starts: Counts, stops: Counts, out: Array, *, batch_first: bool = True
    ) -> None:
        """Read steps of many sequences of one field straight into a padded array, with zeros behind them.

        Args:
            field: The name of a field with values per step.
            rows: Numbers of the view's sequences, in any order, also repeated.
            starts: The first step of each, counted from where the view begins.
            stops: The step behind the last of each.
            out: (rows, steps, width) or (rows, steps), in the type on disk (bfloat16 as uint16); its memory is in order
                but for the first two axes.
            batch_first: False if `out` is (steps, rows, ...).

        Raises:
            LowtideError: A number is out of range, or the store is damaged.
        """
        self.store.fill_steps(field, *self._in_store(rows, starts, stops), out, batch_first=batch_first)

    def read_static(self, field: str, rows: Counts) -> Array:
        """Read the values per sequence of many sequences: (rows, width) or (rows,), in the type on disk.

        Raises:
            LowtideError: A number is out of range, or the store is damaged.
        """
        check_range(rows, len(self))
        return self.store.read_values(field, rows if self.index is None else self.index[rows])

    def loader(self, **options: Unpack[LoaderOptions]) -> Loader:
        """Batches of it, epoch after epoch, in bounded memory; resumable.

        Args:
            options: What `lowtide.data.LoaderSettings` explains: `batch_size` or `max_padded_steps`, `shuffle`, `seed`,
                `max_length`, `windows`, `lanes`, `framework`, `rank` and more.

        Raises:
            LowtideError: The options do not fit the data, or each other.
        """
        from lowtide.data.loading.loader import Loader  # noqa: PLC0415 - it loads from views, and imports them

        return Loader.of(self, **options)

    def dataset(self, **options: Unpack[LoaderOptions]) -> BatchDataset:
        """The same batches for a plain torch DataLoader: `DataLoader(store.dataset(...), num_workers=4)`."""
        load("torch", wanted_by="store.dataset")
        from lowtide.data.loading.settings import LoaderSettings  # noqa: PLC0415 - as above
        from lowtide.data.loading.torch_dataset import BatchDataset  # noqa: PLC0415 - it brings torch

        return BatchDataset(self, LoaderSettings(**options))

    def tf_dataset(self, *, lengths: bool = False, **options: Unpack[LoaderOptions]) -> Any:  # noqa: ANN401 - of TensorFlow
        """The same batches as a `tf.data.Dataset` of (inputs, targets, weights).

        Args:
            lengths: Whether the inputs are dictionaries with an entry "lengths".
            options: As for `loader`.
        """
        from lowtide.data.loading.settings import LoaderSettings  # noqa: PLC0415 - as above
        from lowtide.data.loading.tensorflow_dataset import tf_dataset  # noqa: PLC0415 - as above

        return tf_dataset(self, LoaderSettings(**options), lengths=lengths)

    def py_dataset(self, *, lengths: bool = False, **options: Unpack[LoaderOptions]) -> Any:  # noqa: ANN401 - of Keras
        """The same batches as a `keras.utils.PyDataset`; the arguments are those of `tf_dataset`."""
        from lowtide.data.loading.settings import LoaderSettings  # noqa: PLC0415 - as above
        from lowtide.data.loading.tensorflow_dataset import py_dataset  # noqa: PLC0415 - as above

        return py_dataset(self, LoaderSettings(**options), lengths=lengths)

    def _in_store(self, rows: Counts, starts: Counts, stops: Counts) -> tuple[Counts, Counts, Counts]:
        """The numbers of sequences and steps that the store has for those of this view."""
        check_range(rows, len(self))
        sequences = rows if self.index is None else self.index[rows]
        if self.start is not None and self.stop is not None:
            first = self.start[rows]
            if len(rows) and bool((stops > self.stop[rows] - first).any() or (starts < 0).any()):
                raise LowtideError(
                    what="steps were asked for that lie outside of the view",
                    why="they belong to another part of the sequence",
                    fix="ask for steps from 0 to view.lengths",
                )
            starts, stops = starts + first, stops + first
        return sequences, starts, stops

    def __reduce__(self) -> tuple[Callable[..., View], tuple[Any, ...]]:
        return View, (self.store, self.index, self.start, self.stop)

    def __str__(self) -> str:
        from lowtide.data.describe import describe, to_text  # noqa: PLC0415 - it describes views, and imports them

        return to_text(describe(self))

    def _repr_html_(self) -> str:
        from lowtide.data.describe import describe, to_html  # noqa: PLC0415 - it describes views, and imports them

        return to_html(describe(self))

    def __repr__(self) -> str:
        return (
            f"View({len(self)} of {len(self.store)} sequences, {int(self.lengths.sum())} steps, of {self.store.path})"
        )


def check_range(numbers: Counts, count: int) -> None:
    """See that numbers of sequences are those of sequences that are there.

    Raises:
        LowtideError: One is not.
    """
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= count):
        wrong = numbers[(numbers < 0) | (numbers >= count)][0]
        raise LowtideError(
            what=f"sequence {wrong} was asked for, of {count}",
            why="sequences are numbered from 0",
            fix=f"ask for numbers from 0 to {count - 1}",
        )


def by_role(fields: tuple[Field, ...], read: Callable[[Field], Any]) -> Part:
    """One role's arrays: the one itself, several by name, None where there is none."""
    if not fields:
        return None
    if len(fields) == 1:
        part: Part = read(fields[0])
        return part
    return {field.name: read(field) for field in fields}
