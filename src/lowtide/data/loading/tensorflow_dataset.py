"""Batches for TensorFlow and Keras: a `tf.data.Dataset`, and a `keras.utils.PyDataset`.

Both give (inputs, targets, weights) as `model.fit` takes them, or (inputs,) where there are no targets. Weights are 0
on padding, so a loss per step that Keras averages with them is that of the valid steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from lowtide.data.batch import Batch, Part
from lowtide.data.fields import Array, Role, Schema
from lowtide.data.frameworks import load
from lowtide.data.loading.loader import Loader
from lowtide.data.loading.settings import LoaderSettings
from lowtide.data.view import View
from lowtide.errors import LowtideError

_PREFETCH = 2
"""Batches that tf.data makes ahead."""
_LENGTHS = "lengths"


def tf_dataset(view: View, settings: LoaderSettings, *, lengths: bool = False) -> Any:  # noqa: ANN401 - of TensorFlow
    """A `tf.data.Dataset` of batches, two of them made ahead; looped over again, it gives the next epoch.

    Args:
        view: What is loaded from.
        settings: How; framework and prefetch are settled here.
        lengths: Whether the inputs get an entry "lengths", (B,).

    Raises:
        MissingExtraError: TensorFlow is not installed.
        LowtideError: As for a loader.
    """
    tf = load("tensorflow", wanted_by="store.tf_dataset")
    loader, elements = _prepared(view, settings, lengths=lengths)
    epochs = count()

    def batches() -> Iterator[tuple[Part, ...]]:
        for batch in loader.part(next(epochs)):
            yield elements(batch)

    def specification(name: str, array: Array) -> Any:  # noqa: ANN401 - of TensorFlow
        # Rows too: the last batch has fewer.
        free = 2 if name in elements.per_step else 1
        return tf.TensorSpec((*(None,) * free, *array.shape[free:]), array.dtype)

    first = next(loader.part(0))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=elements(first, specification))
    if settings.max_padded_steps is None and settings.lanes is None:  # else some epochs have more batches than others
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(loader)))
    return dataset.prefetch(_PREFETCH)


def py_dataset(view: View, settings: LoaderSettings, *, lengths: bool = False) -> Any:  # noqa: ANN401 - of Keras
    """A `keras.utils.PyDataset` of batches, for every backend of Keras.

    Args:
        view: What is loaded from.
        settings: How; framework and prefetch are settled here.
        lengths: Whether the inputs get an entry "lengths", (B,).

    Raises:
        MissingExtraError: Keras is not installed.
        LowtideError: As for a loader; or batches cannot be had by number.
    """
    keras = load("keras", wanted_by="store.py_dataset")
    loader, elements = _prepared(view, settings, lengths=lengths)
    loader.batch(0)

    base: Any = keras.utils.PyDataset

    class Batches(base):  # type: ignore[misc]  # Keras is imported when it is used
        """Batches of one epoch by number."""

        def __len__(self) -> int:
            return len(loader)

        def __getitem__(self, number: int) -> tuple[Part, ...]:
            return elements(loader.batch(number))

        def on_epoch_end(self) -> None:
            """Go to the next epoch."""
            loader.set_epoch(loader.epoch + 1)

    return Batches()


def _prepared(view: View, settings: LoaderSettings, *, lengths: bool) -> tuple[Loader, _Elements]:
    if settings.packed or settings.pin_memory:
        raise LowtideError(
            what=f"packed={settings.packed} and pin_memory={settings.pin_memory} for TensorFlow or Keras",
            why="both are torch's",
            fix="leave them out",
        )
    named = [field.name for field in view.schema.fields if field.role != "targets"]
    if lengths and _LENGTHS in named:
        raise LowtideError(
            what=f"lengths=True, and a field of the store is called {_LENGTHS!r}",
            why="one of the two would take the place of the other among the inputs",
            fix="leave lengths=True out, or ingest the field under another name",
        )
    loader = Loader(view, replace(settings, framework="numpy", prefetch_bytes=0))
    return loader, _Elements(view.schema, next(loader.part(0)).per_step, lengths=lengths)


class _Elements:
    """From batches of NumPy arrays to what Keras takes: static fields become inputs, by name."""

    def __init__(self, schema: Schema, per_step: frozenset[str], *, lengths: bool) -> None:
        """Prepare.

        Args:
            schema: The fields.
            per_step: Of a batch: which of its inputs and targets have an axis of time.
            lengths: Whether lengths become an input.
        """
        self._schema = schema
        self._lengths = lengths
        self.per_step = {
            f"{part}/{name}"
            for role, parts in (("inputs", ["inputs"]), ("targets", ["targets", "weights"]))
            for name in self._names(role)
            for part in parts
            if {role, f"{role}/{name}"} & per_step
        }

    def __call__(self, batch: Batch, act: Callable[[str, Array], Any] = lambda _, array: array) -> tuple[Part, ...]:
        """(inputs, targets, weights), or (inputs,), with `act` applied to each array and its name."""
        inputs = self._by_name("inputs", batch.inputs)
        targets = self._by_name("targets", batch.targets)
        weights = {name: self._weight(batch, f"targets/{name}") for name in targets}
        more = self._by_name("static", batch.static) | ({_LENGTHS: batch.lengths} if self._lengths else {})
        parts = [("inputs", inputs | more), ("targets", targets), ("weights", weights)]
        made = [{name: act(f"{role}/{name}", array) for name, array in part.items()} for role, part in parts if part]
        return tuple(part if len(part) > 1 else next(iter(part.values())) for part in made)

    def _weight(self, batch: Batch, name: str) -> Array:
        weight = np.ones(batch.size, np.float32) if batch.weight is None else np.asarray(batch.weight)
        if name not in self.per_step:
            return weight
        rows = weight if weight.ndim > 1 or not batch.batch_first else weight[:, None]
        return np.asarray(batch.mask * rows, np.float32)

    def _by_name(self, role: Role, part: Part) -> dict[str, Array]:
        if part is None:
            return {}
        return dict(part) if isinstance(part, Mapping) else {self._names(role)[0]: part}

    def _names(self, role: str) -> list[str]:
        return [field.name for field in self._schema.fields if field.role == role]
