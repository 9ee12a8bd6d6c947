"""A loader gives every sequence once an epoch, goes on exactly where it was, and leaves nothing running."""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide
from lowtide.data import Field, Schema, Store, StoreWriter
from lowtide.data.batch import Batch
from lowtide.data.loading import batch_list
from lowtide.data.loading.lanes import Lanes
from lowtide.data.loading.windows import Windows
from lowtide.errors import LowtideError
from tests.data.loading_cases import SCHEMA, assert_told, log_normal, rows_of, told

LENGTHS = np.minimum(log_normal(200, median=20), 150)

KINDS: dict[str, dict[str, Any]] = {
    "count": {"batch_size": 7},
    "steps": {"max_padded_steps": 400},
    "numpy": {"batch_size": 7, "framework": "numpy", "prefetch_bytes": 0},
    "in order": {"batch_size": 7, "shuffle": False, "batch_first": False},
    "windows": {"batch_size": 7, "windows": Windows(16, 8)},
    "crops": {"batch_size": 7, "max_length": 12, "cut": "random"},
    "split": {"batch_size": 7, "max_length": 40, "over_length": "split", "round_lengths": 16},
    "lanes": {"lanes": Lanes(6, 10)},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS.tolist(), tmp_path_factory.mktemp("loader") / "store")


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_list, "POOL_ITEMS", 60)


def rows_in(batches: Any) -> list[list[tuple[int, int, int]]]:  # noqa: ANN401 - of batches
    return [rows_of(batch) for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_every_step_that_they_should(store: Store, kind: str) -> None:
    loader = store.loader(**KINDS[kind])
    seen = np.zeros((len(LENGTHS), LENGTHS.max()), np.int64)
    expected = len(loader)
    batches = 0
    for batch in loader:
        batches += 1
        for sequence, start, steps in rows_of(batch):
            seen[sequence, start : start + steps] += 1
        if kind != "lanes":  # which have rows without a sequence
            assert_told(batch)
    assert (loader.epoch, batches) == (1, expected)
    if kind not in {"windows", "crops"}:
        np.testing.assert_array_equal(seen, np.arange(LENGTHS.max()) < LENGTHS[:, None])
    if kind == "windows":
        np.testing.assert_array_equal(seen > 0, np.arange(LENGTHS.max()) < LENGTHS[:, None])
    if kind == "crops":
        np.testing.assert_array_equal(seen.sum(1), np.minimum(LENGTHS, 12))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(taken=st.integers(0, 60), data=st.data())
def test_another_loader_goes_on_with_the_very_batches(store: Store, kind: str, taken: int, data: st.DataObject) -> None:
    loader, again = store.loader(**KINDS[kind]), store.loader(**KINDS[kind])
    loader.set_epoch(data.draw(st.integers(0, 2)))
    first = loader.epoch
    iterator = iter(loader)
    for _ in range(min(taken, len(loader))):
        next(iterator)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    del iterator
    assert again.epoch == first
    expected = rows_in(loader)
    assert rows_in(again) == expected
    assert again.epoch == loader.epoch == first + 1
    assert next(iter(again)).inputs.equal(next(iter(loader)).inputs) if kind != "numpy" else True


@given(seed=st.integers(0, 2**32 - 1))
def test_stopped_anywhere_with_any_ranks_nothing_is_lost_or_repeated(store: Store, seed: int) -> None:
    draw = np.random.default_rng(seed)
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for ranks in [*draw.integers(1, 5, 3).tolist(), 1]:
        states = []
        rounds = int(draw.integers(0, 12)) if len(seen) < len(LENGTHS) and ranks > 0 else 0
        for rank in range(ranks):
            loader = store.loader(batch_size=7, seed=seed, rank=rank, ranks=ranks, prefetch_bytes=0)
            if state is not None:
                loader.load_state_dict(state)
            epoch, iterator = loader.epoch, iter(loader)
            for _ in range(rounds):
                batch = next(iterator, None)
                seen += [] if batch is None or epoch else batch.index.tolist()
            states.append(loader.state_dict())
        state = states[int(draw.integers(0, ranks))]
    assert state is not None
    loader = store.loader(batch_size=7, seed=seed)
    loader.load_state_dict(state)
    if loader.epoch == 0:
        seen += [number for batch in loader for number in batch.index.tolist()]
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_a_state_counts_what_was_handed_out_and_not_what_was_made_ahead(store: Store) -> None:
    made = 0
    ahead = threading.Event()

    def count(batch: Batch, _: np.random.Generator) -> Batch:
        nonlocal made
        made += 1
        if made == 10:
            ahead.set()
        return batch

    loader, again = store.loader(batch_size=7, augment=count), store.loader(batch_size=7)
    iterator = iter(loader)
    next(iterator), next(iterator)
    assert ahead.wait(60)
    again.load_state_dict(loader.state_dict())
    assert rows_of(next(iter(again))) == rows_of(next(iterator))


def test_a_state_after_the_last_batch_is_the_end_of_its_epoch(store: Store) -> None:
    loader, again = store.loader(batch_size=7), store.loader(batch_size=7)
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    again.load_state_dict(loader.state_dict())
    assert rows_in(again) == []
    assert next(iterator, None) is None
    assert rows_in(again) == rows_in(loader)


def test_a_state_survives_torch_save(store: Store) -> None:
    loader = store.loader(batch_size=7)
    next(iter(loader))
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    store.loader(batch_size=7).load_state_dict(torch.load(file, weights_only=True))


def test_a_loop_after_a_break_goes_on_and_set_epoch_begins_anew(store: Store) -> None:
    whole = rows_in(store.loader(batch_size=7))
    loader = store.loader(batch_size=7)
    for _ in loader:
        break
    assert rows_in(loader) == whole[1:]
    loader.set_epoch(0)
    assert rows_in(loader) == whole
    with pytest.raises(LowtideError, match="set_epoch"):
        loader.set_epoch(-1)


def test_one_loader_is_at_one_place(store: Store) -> None:
    loader = store.loader(batch_size=7)
    outer = iter(loader)
    next(outer)
    next(iter(loader))
    with pytest.raises(LowtideError, match="a loader is at one place"):
        next(outer)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state | {"version": 99}, "no state of this version"),
        (lambda state: {"epoch": state["version"]}, "no state of this version"),
        (lambda _: None, "no state of this version"),
        (lambda state: state | {"settings": None}, "no state of this version"),
        (lambda state: state | {"data": "other"}, "other data"),
        (lambda state: state | {"settings": state["settings"] | {"seed": 5}}, r"seed=5 \(here 0\)"),
        (lambda state: state | {"position": {"epoch": 0}}, "no place between batches"),
    ],
)
def test_a_state_of_something_else_is_refused(store: Store, change: Any, said: str) -> None:  # noqa: ANN401 - a lambda
    loader = store.loader(batch_size=7)
    with pytest.raises(LowtideError, match=said):
        loader.load_state_dict(change(loader.state_dict()))


def test_a_state_of_lanes_of_other_steps_is_refused(store: Store) -> None:
    state = store.loader(lanes=Lanes(4, 8)).state_dict()
    store.loader(lanes=Lanes(4, 8)).load_state_dict(state)
    with pytest.raises(LowtideError, match=r"lanes='Lanes\(count=4, steps=8\)' \(here 'Lanes\(count=4, steps=16\)'\)"):
        store.loader(lanes=Lanes(4, 16)).load_state_dict(state)
    with pytest.raises(LowtideError, match="lanes="):
        store.loader().load_state_dict(state)


@pytest.mark.parametrize("copied", [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))])  # noqa: S301 - made here
@pytest.mark.parametrize("options", [{"batch_size": 7}, {"lanes": Lanes(4, 8)}])
def test_a_copy_of_a_loader_goes_on_where_it_is(store: Store, copied: Any, options: Any) -> None:  # noqa: ANN401 - as pickle
    loader = store.loader(**options)
    next(iter(loader))
    again = copied(loader)
    assert again.state_dict() == loader.state_dict()
    assert rows_in(again) == rows_in(loader)


def test_a_state_of_another_part_of_the_store_is_refused(store: Store) -> None:
    with pytest.raises(LowtideError, match="other data"):
        store[:50].loader(batch_size=7).load_state_dict(store.loader(batch_size=7).state_dict())


def test_a_part_of_a_store_is_numbered_from_0(store: Store) -> None:
    view = store[np.arange(100, 150)]
    for batch in view.loader(batch_size=8):
        for row, (number, _, steps) in zip(batch.inputs, rows_of(batch), strict=True):
            assert steps == LENGTHS[100 + number]
            assert row[0, 0] == 100 + number


def test_ranks_have_the_same_number_of_batches(store: Store) -> None:
    parts = [rows_in(store.loader(batch_size=7, rank=rank, ranks=4)) for rank in range(4)]
    assert {len(part) for part in parts} == {len(store.loader(batch_size=7, ranks=4))}
    rows = [row for part in parts for batch in part for row in batch]
    assert sorted(rows) == [(number, 0, length) for number, length in enumerate(LENGTHS.tolist())]


def test_the_first_batch_is_the_largest(store: Store) -> None:
    loader = store.loader(batch_size=7)
    padded = [batch.size * batch.steps for batch in loader]
    assert padded[0] == max(padded) == np.prod(loader.largest)


def test_augment_is_called_once_a_batch_and_repeats_itself(store: Store) -> None:
    def noisy(batch: Batch, random: np.random.Generator) -> Batch:
        return replace(batch, inputs=batch.inputs + torch.from_numpy(random.normal(size=batch.inputs.shape)))

    first, again = (next(iter(store.loader(batch_size=7, augment=noisy))) for _ in range(2))
    assert first.inputs.equal(again.inputs)
    second = store.loader(batch_size=7, augment=noisy)
    batches = list(second)
    noise = [(batch.inputs[:, :, 0] - batch.index[:, None])[0, 0].item() for batch in batches]
    assert len(set(noise)) == len(noise)


@pytest.mark.parametrize("prefetch_bytes", [0, 1 << 20])
def test_an_error_while_a_batch_is_made_comes_where_it_is_asked_for(store: Store, prefetch_bytes: int) -> None:
    def fail(batch: Batch, random: np.random.Generator) -> Batch:
        if random.integers(4) == 0:
            raise ZeroDivisionError("as a user's function might")
        return batch

    loader = store.loader(batch_size=7, augment=fail, prefetch_bytes=prefetch_bytes)
    with pytest.raises(ZeroDivisionError, match="as a user's"):
        list(loader)
    with pytest.raises(ZeroDivisionError, match="as a user's") as caught:
        next(iter(loader))  # the place is before the batch that failed
    number = loader.state_dict()["position"]["taken"]
    of = ", ".join(str(row[0]) for row in rows_of(store.loader(batch_size=7).batch(number)))
    assert caught.value.__notes__ == [f"while batch {number} of epoch 0 was made, of the sequences [{of}] ..."]


def test_no_thread_outlives_a_loop(store: Store) -> None:
    for batch in store.loader(batch_size=7):
        assert batch.size
        break
    list(store.loader(batch_size=7))
    loader = store.loader(batch_size=7)
    kept = iter(loader)
    next(kept)
    del kept, loader
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name == "lowtide-ring"] == []


def test_the_interpreter_ends_in_the_middle_of_a_loop(store: Store) -> None:
    program = (
        "import sys\nfrom lowtide.data import Store\n"
        f"loader = Store({str(store.path)!r}).loader(batch_size=4, prefetch_bytes=1000)\n"
        "for batch in loader:\n    sys.exit(3)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (3, "")


def test_lanes_train_a_stateful_step(store: Store) -> None:
    torch.manual_seed(0)
    model = lowtide.lean(torch.nn.LSTM(2, 7, batch_first=True))

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.rnn(x)[0]
            return result

    step = lowtide.StreamStep(Head(), lowtide.nn.losses.cross_entropy, window_steps=10, stateful=True)
    for batch in store.loader(lanes=Lanes(6, 10)):
        step.reset(batch.begins)
        assert torch.isfinite(step(batch.inputs, batch.targets, lengths=batch.lengths))


def test_a_batch_is_had_by_its_number(store: Store) -> None:
    loader = store.loader(batch_size=7)
    expected = rows_in(loader)
    loader.set_epoch(0)
    assert [rows_of(loader.batch(number)) for number in range(len(loader))] == expected
    with pytest.raises(LowtideError, match="batch 0 of lanes"):
        store.loader(lanes=Lanes(2, 5)).batch(0)
    with pytest.raises(LowtideError, match="lanes were to be joined"):
        store.loader(lanes=Lanes(2, 5)).joiner("steps")


@pytest.mark.parametrize("options", [{"windows": Windows(5)}, {"max_length": 5, "over_length": "split"}])
def test_rows_of_one_sequence_on_several_ranks_are_not_joined(store: Store, options: Any) -> None:  # noqa: ANN401 - drawn
    with pytest.raises(LowtideError, match="dealt to several ranks"):
        store.loader(ranks=2, **options).joiner("mean")
    assert store.loader(ranks=2, max_length=5).joiner("mean").pending == 0


def test_ranks_for_which_there_is_not_one_round_are_refused(store: Store) -> None:
    assert len(store[:15].loader(batch_size=5, ranks=3, drop_last=True)) == 1
    with pytest.raises(LowtideError, match="no batch comes of 14 items"):
        store[:14].loader(batch_size=5, ranks=3, drop_last=True)
    assert len(store[:14].loader(max_padded_steps=10_000, ranks=1, drop_last=True)) == 1
    with pytest.raises(LowtideError, match="no batch comes of 14 items"):
        store[:14].loader(max_padded_steps=10_000, ranks=2, drop_last=True)


def test_it_says_what_it_does(store: Store) -> None:
    assert "200 items of 200 sequences" in repr(store.loader())


@pytest.mark.parametrize(
    ("lengths", "width", "options"),
    [([600, *[1] * 400], 20_000, {"max_padded_steps": 600}), ([20_000] * 130, 1, {"batch_size": 64, "balance": "y"})],
)
def test_what_is_reported_covers_wide_values_of_many_rows_and_weights_of_many_steps(
    tmp_path: Path, lengths: list[int], width: int, options: dict[str, Any]
) -> None:
    schema = Schema((*SCHEMA.fields[:2], Field("wide", "static", "sequence", "float32", width)), "int64")
    with StoreWriter(tmp_path / "a", schema) as writer:
        for number, steps in enumerate(lengths):
            arrays: dict[str, Any] = {"x": np.zeros((steps, 2), np.float32), "y": np.zeros(steps, np.int16)}
            writer.add(number, {**arrays, "wide": np.zeros(width, np.float32)})
        writer.commit()
    loader = Store(tmp_path / "a").loader(prefetch_bytes=0, framework="numpy", **options)
    next(iter(loader))  # what is made once is there
    loader.set_epoch(0)
    tracemalloc.start()
    largest = max(batch.nbytes for batch in loader)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest <= peak <= largest + loader.ring_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by Linux")
def test_memory_stays_within_what_is_reported(tmp_path: Path) -> None:
    program = (
        "import sys\nimport torch\n"
        "from lowtide.data import Store\nfrom lowtide.memory import growth\n"
        f"loader = Store({str(tmp_path / 'large')!r}).loader(batch_size=32, prefetch_bytes=8 << 20)\n"
        "batches = iter(loader)\n"
        "largest = next(batches).nbytes\n"
        "with growth() as grown:\n"
        "    for batch in batches:\n        pass\n"
        "print(grown.bytes, loader.ring_bytes + 2 * largest)\n"
    )
    told([4000] * 400, tmp_path / "large")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, allowed = map(int, result.stdout.split())
    assert grown <= allowed
