"""A plain DataLoader gives the loader's own batches, in their order, however many workers make them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from lowtide.data import Store
from lowtide.data.loading.lanes import Lanes
from lowtide.errors import LowtideError
from tests.data.loading_cases import assert_told, log_normal, rows_of, told

LENGTHS = log_normal(60, median=20)

WORKERS = """
import json, sys
from torch.utils.data import DataLoader
from lowtide.data import Store

if __name__ == "__main__":
    dataset = Store(sys.argv[1]).dataset(batch_size=7)
    method, workers = sys.argv[2], int(sys.argv[3])
    loader = DataLoader(dataset, num_workers=workers, multiprocessing_context=method)
    print(json.dumps([[batch.index.tolist() for batch in loader] for epoch in range(2)]))
"""

CHANGING = """
import json, sys
from torch.utils.data import DataLoader
from lowtide.data import Store

dataset = Store(sys.argv[1]).dataset(batch_size=7)
epochs = [[next(iter(dataset))]]  # a look at the data, before any worker is started
epochs += [list(DataLoader(dataset, num_workers=workers)) for workers in (2, 1, 3, 0)]
print(json.dumps([[batch.index.tolist() for batch in epoch] for epoch in epochs]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS.tolist(), tmp_path_factory.mktemp("dataset") / "store")


def expected(store: Store, epochs: int) -> list[list[list[int]]]:
    loader = store.loader(batch_size=7)
    return [[batch.index.tolist() for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("batch_size", [None, 1])
def test_each_loop_is_the_next_epoch(store: Store, batch_size: int | None) -> None:
    loader = DataLoader(store.dataset(batch_size=7), batch_size=batch_size)
    assert len(loader) == 9
    found = [[batch.index.tolist() for batch in loader] for _ in range(3)]
    assert found == expected(store, 3)
    for batch in loader:
        assert_told(batch)


@pytest.mark.parametrize(("method", "workers"), [("spawn", 2), ("fork", 3)])
def test_workers_make_the_same_batches_in_the_same_order(
    store: Store, tmp_path: Path, method: str, workers: int
) -> None:
    script = tmp_path / "workers.py"
    script.write_text(WORKERS, encoding="utf-8")
    command = [sys.executable, str(script), str(store.path), method, str(workers)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(result.stdout) == expected(store, 2)


def test_the_number_of_workers_may_change_between_epochs(store: Store) -> None:
    command = [sys.executable, "-c", CHANGING, str(store.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    looked, *epochs = json.loads(result.stdout)
    whole = expected(store, 5)
    assert looked == whole[0][:1]
    assert epochs == whole[1:]


def test_an_epoch_can_be_chosen(store: Store) -> None:
    dataset = store.dataset(batch_size=7)
    dataset.set_epoch(2)
    assert [batch.index.tolist() for batch in dataset] == expected(store, 3)[2]
    assert len(dataset) == 9


def test_it_is_pickled_without_data(store: Store) -> None:
    dataset = store.dataset(batch_size=7, lanes=None)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - made here
    assert [rows_of(batch) for batch in again] == [rows_of(batch) for batch in dataset]
    assert len(pickle.dumps(store.dataset(lanes=Lanes(2, 5)))) < 20_000


def test_a_dataloader_that_collects_batches_is_told(store: Store) -> None:
    with pytest.raises(LowtideError, match="collected 4 batches"):
        next(iter(DataLoader(store.dataset(batch_size=7), batch_size=4)))


def test_pinning_is_the_dataloaders_business(store: Store) -> None:
    with pytest.raises(LowtideError, match="pin_memory"):
        store.dataset(pin_memory=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_dataloader_pins_batches(store: Store) -> None:
    batch = next(iter(DataLoader(store.dataset(batch_size=7), batch_size=None, pin_memory=True)))
    assert batch.inputs.is_pinned()
