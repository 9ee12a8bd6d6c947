"""tf.data and Keras are given the loader's own batches, with weights that are 0 on padding."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import LowtideError, MissingExtraError
from tests.data.loading_cases import LABELLED, told

LENGTHS = [4, 9, 30, 2, 17, 5, 5, 8, 11]

CHILD = """
import json, sys
import keras
import numpy as np
from lowtide.data import Lanes, Store
from lowtide.data.loading.windows import Windows

steps, labelled = (Store(path) for path in sys.argv[1:3])
found = {}

dataset = steps.tf_dataset(batch_size=4, seed=3)
found["cardinality"] = int(dataset.cardinality())
found["spec"] = [str(part) for part in json.loads(json.dumps(dataset.element_spec, default=str))]
told = []
for epoch in range(2):
    for x, y, weight in dataset:
        x = {name: np.asarray(part) for name, part in x.items()}
        lengths = np.asarray(weight).sum(1).astype(int)
        assert np.asarray(weight).shape == np.asarray(y).shape == x["x"].shape[:2]
        assert x["s"].shape == (len(lengths), 1)
        told.append([[int(row[0, 0]), int(length)] for row, length in zip(x["x"], lengths)])
found["rows"] = told

lanes = steps.tf_dataset(lanes=Lanes(2, 3))
expected = steps.loader(lanes=Lanes(2, 3), framework="numpy", prefetch_bytes=0)
found["lanes"] = [[len(list(lanes)), len(list(expected))] for epoch in range(6)]

bare = next(iter(steps.tf_dataset(batch_size=4, seed=3, lengths=True)))
found["lengths"] = np.asarray(bare[0]["lengths"]).tolist()

windows = next(iter(labelled.tf_dataset(batch_size=64, windows=Windows(5), max_padded_steps=None)))
found["weights"] = sorted(set(np.round(np.asarray(windows[2]), 4).tolist()))

sequence = keras.Input((None, 2), name="x")
static = keras.Input((1,), name="s")
hidden = keras.layers.LSTM(3, return_sequences=True)(keras.layers.Masking()(sequence))
model = keras.Model({"x": sequence, "s": static}, keras.layers.Dense(7)(hidden))
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
found["tf.data"] = model.fit(dataset, epochs=2, verbose=0).history["loss"]

batches = steps.py_dataset(batch_size=4, seed=3)
found["PyDataset"] = [len(batches), batches[1][1].shape[0]]
first = [batches[number][0]["x"][:, 0, 0].tolist() for number in range(len(batches))]
batches.on_epoch_end()
second = [batches[number][0]["x"][:, 0, 0].tolist() for number in range(len(batches))]
found["epochs"] = [first, second]
found["keras"] = model.fit(batches, epochs=2, verbose=0).history["loss"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tensorflow")
    told(LENGTHS, folder / "steps")
    told(LENGTHS, folder / "labelled", LABELLED)
    return folder / "steps", folder / "labelled"


@pytest.fixture(scope="module")
def found(folders: tuple[Path, Path]) -> Any:  # noqa: ANN401 - JSON
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    command = [sys.executable, "-c", CHILD, *map(str, folders)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def expected(folders: tuple[Path, Path], epochs: int) -> list[list[list[int]]]:
    from lowtide.data import Store  # noqa: PLC0415 - the fixture wrote it

    loader = Store(folders[0]).loader(batch_size=4, seed=3)
    return [
        [list(row) for row in zip(batch.index.tolist(), batch.lengths.tolist(), strict=True)]
        for _ in range(epochs)
        for batch in loader
    ]


def test_tf_data_gives_the_loaders_batches_epoch_by_epoch(found: Any, folders: tuple[Path, Path]) -> None:  # noqa: ANN401
    assert found["rows"] == expected(folders, 2)
    assert found["cardinality"] == 3


def test_epochs_of_lanes_may_have_different_numbers_of_batches(found: Any) -> None:  # noqa: ANN401 - JSON
    assert all(told == expected for told, expected in found["lanes"])
    assert len({told for told, _ in found["lanes"]}) > 1


def test_lengths_come_among_the_inputs_on_request(found: Any, folders: tuple[Path, Path]) -> None:  # noqa: ANN401
    assert found["lengths"] == [length for _, length in expected(folders, 1)[0]]


def test_windows_of_one_label_weigh_together_as_much_as_one(found: Any) -> None:  # noqa: ANN401
    counts = {-(-length // 5) for length in LENGTHS}
    assert found["weights"] == pytest.approx(sorted(1 / count for count in counts), abs=1e-4)


def test_keras_gets_batches_by_number_and_the_next_epochs_after_each(found: Any, folders: tuple[Path, Path]) -> None:  # noqa: ANN401
    rows = [[float(number) for number, _ in batch] for batch in expected(folders, 2)]
    assert found["epochs"] == [rows[:3], rows[3:]]
    assert found["PyDataset"] == [3, len(rows[1])]


def test_keras_trains_on_both(found: Any) -> None:  # noqa: ANN401
    for losses in (found["tf.data"], found["keras"]):
        assert len(losses) == 2
        assert all(0 < loss < 10 for loss in losses)


@pytest.mark.parametrize("name", ["tf_dataset", "py_dataset"])
def test_what_is_torchs_is_refused_and_a_missing_framework_named(
    folders: tuple[Path, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide.data import Store  # noqa: PLC0415 - the fixture wrote it
    from lowtide.data.loading import tensorflow_dataset  # noqa: PLC0415 - as above

    monkeypatch.setattr(tensorflow_dataset, "load", lambda *_, **__: None)
    with pytest.raises(LowtideError, match="packed=True"):
        getattr(Store(folders[0]), name)(packed=True)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(MissingExtraError, match="which is not installed"):
        getattr(Store(folders[0]), name)()
