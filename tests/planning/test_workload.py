"""The sizes of batches are those that training will see, and looking at them leaves no trace."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lowtide
from lowtide.data import Batch, Lanes, Store
from lowtide.errors import LowtideError
from lowtide.nn import bucketed
from lowtide.planning.workload import Workload, layout_of, read_workload, sizes_to_try
from tests.data.loading_cases import log_normal, told
from tests.planning.cases import CLASSES, INPUTS, Samples, Tagger, padded, sample

LENGTHS = log_normal(60).tolist()
MODEL = Tagger()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS, tmp_path_factory.mktemp("store") / "store")


def read(**given: Any) -> Workload:  # noqa: ANN401 - arguments of read_workload
    return read_workload(MODEL, **given)


def sizes(workload: Workload) -> Counter[tuple[int, int]]:
    return Counter(zip(workload.rows.tolist(), workload.steps.tolist(), strict=True))


def of(batches: Any) -> Counter[tuple[int, int]]:  # noqa: ANN401 - batches in any form
    """Rows and steps of real batches."""
    found: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        rows, steps = (batch.inputs if isinstance(batch, Batch) else batch[0]).shape[:2]
        found[(rows, steps)] += 1
    return found


def randomness() -> tuple[Any, ...]:
    """Where all global generators stand."""
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the global generator
    return torch.get_rng_state().tolist(), random.getstate(), str(numpy), numpy["state"]["key"].tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 8},
        {"batch_size": 8, "shuffle": False},
        {"batch_size": 7, "drop_last": True},
        {"batch_size": 8, "max_length": 40},
        {"batch_size": 8, "round_lengths": 16},
    ],
)
def test_sizes_of_a_loader_are_those_that_it_gives(store: Store, options: dict[str, Any]) -> None:
    loader = store.loader(**options)
    found = read(data=loader, batch_size=64)
    given = of(loader)
    assert sizes(found) == given + Counter([loader.largest])
    for epoch in range(1, 4):
        loader.set_epoch(epoch)
        for rows, steps in of(loader):  # of other epochs, too, none is larger than what is planned for
            assert rows <= found.batch_size
            assert steps <= found.longest
    assert found.batches == pytest.approx(sum(given.values()))
    assert found.ring_bytes == loader.ring_bytes
    assert found.prefetch_bytes == loader.settings.prefetch_bytes


def test_batches_of_so_many_padded_steps_are_planned_for_in_every_epoch(store: Store) -> None:
    loader = store.loader(max_padded_steps=2000)
    found = read(data=loader, batch_size=2000)
    assert not of(loader) - sizes(found)
    assert found.batches == pytest.approx(len(loader))
    largest = int((found.rows * found.steps).max())
    for epoch in range(5):
        loader.set_epoch(epoch)
        for rows, steps in of(loader):
            assert rows * steps <= largest
            assert steps <= found.longest


def test_a_loader_stays_in_its_place(store: Store) -> None:
    loader = store.loader(batch_size=8)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    before = loader.state_dict()
    read(data=loader, batch_size=8)
    assert loader.state_dict() == before


@pytest.mark.parametrize("part", [slice(None), slice(5, 25)])
def test_a_store_or_a_part_of_it_is_loaded_as_its_loader_would(store: Store, part: slice) -> None:
    found = read(data=store[part], batch_size=8)
    given = of(store[part].loader(batch_size=8))
    assert sizes(found) - given == Counter([(8, max(LENGTHS[part]))]) or sizes(found) == given + Counter(
        [store[part].loader(batch_size=8).largest]
    )
    assert found.loader is not None
    assert found.batch_size == 8


def test_a_large_ring_is_left_out_and_the_bytes_say_so(store: Store) -> None:
    found = read(data=store, batch_size=8)
    assert found.with_ring_in(1 << 50) is found
    without = found.with_ring_in(1 << 20)
    assert without.prefetch_bytes == 0
    assert 0 <= without.ring_bytes < found.ring_bytes
    plain = read(sample=sample(), batch_size=8)
    assert plain.with_ring_in(1) is plain


@pytest.mark.parametrize("seen", [0, 2, None])
def test_a_bucketed_loader_is_read_by_its_lengths_wherever_it_is(seen: int | None) -> None:
    loader = bucketed(Samples(LENGTHS), LENGTHS, batch_size=8)
    for number, _ in enumerate(loader):
        if number == (len(loader) - 1 if seen is None else seen):
            break  # the last time after the last batch of the epoch
    before, drawn = loader.state_dict(), randomness()
    found = read(data=loader, batch_size=8)
    assert loader.state_dict() == before
    assert randomness() == drawn
    loader.set_epoch(0)
    given = of(loader)
    assert sizes(found) == given + Counter([loader.drafts.largest()])
    assert found.batches == pytest.approx(len(loader))


def test_a_bucketed_loader_of_a_smaller_batch_size_is_what_counts() -> None:
    loader = bucketed(Samples(LENGTHS), LENGTHS, batch_size=8)
    assert read(data=loader, batch_size=64).batch_size == 8
    with pytest.raises(LowtideError, match="batches of 8") as refused:
        read(data=loader, batch_size=4)
    assert "batch_size=8" in refused.value.fix


def test_a_dataset_with_lengths_is_read_as_a_bucketed_one() -> None:
    drawn = randomness()
    found = read(data=Samples(LENGTHS), lengths=LENGTHS, batch_size=8)
    assert randomness() == drawn
    loader = bucketed(Samples(LENGTHS), LENGTHS, batch_size=8)
    assert sizes(found) == of(loader) + Counter([loader.drafts.largest()])
    assert found.pattern.has_lengths


@pytest.mark.parametrize(("count", "rows", "batches"), [(30, 8, 30 / 8), (5, 5, 1.0)])
def test_a_dataset_of_samples_of_one_size_needs_no_lengths(count: int, rows: int, batches: float) -> None:
    dataset = TensorDataset(torch.randn(count, 12, INPUTS), torch.randn(count, CLASSES))
    found = read(data=dataset, batch_size=8)
    assert sizes(found) == Counter([(rows, 12)])
    assert found.repeats == batches
    assert not found.varies


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_is_looked_at_without_a_trace(workers: int) -> None:
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(
        Samples(LENGTHS), batch_size=8, shuffle=True, collate_fn=padded, generator=generator, num_workers=workers
    )
    drawn, own = randomness(), generator.get_state()
    found = read(data=loader, batch_size=8)
    assert randomness() == drawn
    assert torch.equal(generator.get_state(), own)
    given = of(loader)
    assert not sizes(found) - given  # the very batches that then come, as far as they were looked at
    assert found.batches == pytest.approx(len(loader))
    assert "lengths=" in found.told
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    assert found.ring_bytes == ahead * found.pattern.bytes(8, found.longest)


def test_a_data_loader_with_lengths_is_planned_for_batches_of_all_of_them() -> None:
    loader = DataLoader(Samples(LENGTHS), batch_size=8, shuffle=True, collate_fn=padded)
    found = read(data=loader, lengths=torch.tensor(LENGTHS), batch_size=64)
    assert found.batch_size == 8
    assert (int(found.rows.max()), found.longest) == (8, max(LENGTHS))
    assert (8, max(LENGTHS)) in sizes(found)
    assert found.batches == pytest.approx(len(LENGTHS) / 8)


def test_a_data_loader_of_a_batch_sampler_or_a_stream_is_read() -> None:
    sampled = DataLoader(Samples(LENGTHS), batch_sampler=[[0, 1, 2], [3, 4]], collate_fn=padded)
    found = read(data=sampled, batch_size=3)
    assert sizes(found) == of(sampled)

    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter([(torch.randn(9, INPUTS), torch.randn(9, CLASSES))] * 10)

    streamed = DataLoader(Stream(), batch_size=4)
    assert sizes(read(data=streamed, batch_size=4)) == of(streamed)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_sample_with_lengths_gives_the_batches_of_a_loader_of_these_lengths(kind: Any) -> None:  # noqa: ANN401
    found = read(sample=sample(), lengths=kind(LENGTHS), batch_size=8)
    loader = bucketed(Samples(LENGTHS), LENGTHS, batch_size=8)
    assert sizes(found) == of(loader) + Counter([loader.drafts.largest()])
    assert found.longest == max(LENGTHS)
    assert found.varies


def test_a_sample_alone_is_one_batch_of_its_length() -> None:
    found = read(sample=sample(4, 10), batch_size=32)
    assert sizes(found) == Counter([(32, 10)])
    assert (found.repeats, found.varies, found.longest) == (1, False, 10)


def test_the_layout_is_what_the_layers_say() -> None:
    assert layout_of(nn.Linear(2, 2))
    assert layout_of(nn.LSTM(2, 2, batch_first=True))
    assert not layout_of(nn.Sequential(nn.LSTM(2, 2), nn.Linear(2, 2)))
    time_major = read_workload(
        Tagger(batch_first=False), sample=(torch.randn(9, 4, INPUTS), torch.randn(9, 4)), batch_size=5
    )
    assert sizes(time_major) == Counter([(5, 9)])


def test_a_store_may_be_planned_for_time_major(tmp_path: Path) -> None:
    loader = told([3, 5, 2], tmp_path / "store").loader(batch_size=2, batch_first=False)
    found = read_workload(Tagger(batch_first=False), data=loader, batch_size=2)
    assert not found.pattern.batch_first
    made = found.pattern.make(2, 7)
    assert isinstance(made, Batch)
    assert made.inputs.shape[:2] == (7, 2)


def test_the_data_are_not_changed_and_can_be_read_again(store: Store) -> None:
    for data in (store, Samples(LENGTHS)):
        lengths = None if data is store else LENGTHS
        one, other = (read(data=data, lengths=lengths, batch_size=8) for _ in range(2))
        assert sizes(one) == sizes(other)


@pytest.mark.parametrize(
    ("data", "count", "expected"),
    [
        ("samples", 64, [8]),
        ("samples", 5, [8]),
        ("samples", 256, [8, 16, 32]),
        ("lengths", 10**5, [8, 16, 32, 64, 128, 256, 512]),
        ("neither", 0, [8, 16, 32, 64, 128, 256, 512]),
    ],
)
def test_sizes_to_try_leave_several_batches_an_epoch(data: str, count: int, expected: list[int]) -> None:
    samples = Samples([3] * count) if data == "samples" else None
    assert sizes_to_try(samples, [3] * count if data == "lengths" else None) == expected


def test_sizes_to_try_are_refused_for_batches_that_have_their_sizes(store: Store) -> None:
    for data in (
        store.loader(batch_size=64),
        DataLoader(Samples(LENGTHS), batch_size=64, collate_fn=padded),
        bucketed(Samples(LENGTHS), LENGTHS, batch_size=64),
    ):
        with pytest.raises(LowtideError, match="auto") as refused:
            sizes_to_try(data, None)
        assert type(data).__name__ in refused.value.what


def refusals(store: Store) -> dict[str, tuple[dict[str, Any], str]]:
    uneven = Samples([3, 5, 2])
    return {
        "nothing": ({}, "neither"),
        "both": ({"data": store, "sample": sample()}, "together"),
        "a number": ({"data": 5}, "int"),
        "a mapping": ({"data": {"inputs": 1}}, "dict"),
        "words": ({"data": "store/"}, "str"),
        "a stream": ({"data": iter([1])}, "list_iterator"),
        "lanes": ({"data": store.loader(lanes=Lanes(2, 5))}, "lanes"),
        "packed": ({"data": store.loader(batch_size=4, packed=True)}, "packed"),
        "a smaller size than a loader's": ({"data": store.loader(batch_size=9)}, "batches of 9"),
        "a smaller size than a DataLoader's": ({"data": DataLoader(uneven, batch_size=9, collate_fn=padded)}, "of 9"),
        "uneven samples": ({"data": uneven}, "do not stack"),
        "no samples": ({"data": TensorDataset(torch.randn(0, 3))}, "no sample"),
        "a loader without batches": ({"data": DataLoader(uneven, batch_size=4, drop_last=True)}, "no batch"),
        "lengths of no sequence": ({"sample": sample(), "lengths": []}, "(0,)"),
        "lengths in a table": ({"sample": sample(), "lengths": [[3]]}, "(1, 1)"),
        "lengths of zero": ({"sample": sample(), "lengths": [3, 0]}, "(2,)"),
        "lengths that are no whole numbers": ({"sample": sample(), "lengths": [3.0, 2.0]}, "float64"),
        "too few lengths": ({"data": uneven, "lengths": [3, 5]}, "3 samples"),
        "a sample that is none": ({"sample": 5}, "int"),
    }


def test_what_cannot_be_made_out_is_refused_with_its_values(store: Store) -> None:
    for case, (given, named) in refusals(store).items():
        drawn = randomness()
        with pytest.raises(LowtideError) as refused:
            read(**given, batch_size=4)
        assert named in refused.value.what, case
        assert randomness() == drawn, case


def test_the_model_is_not_touched(store: Store) -> None:
    model = Tagger()
    before = copy.deepcopy(model.state_dict())
    read_workload(model, data=store, batch_size=8)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model.rnn, lowtide.nn.LSTM)
