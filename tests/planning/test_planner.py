"""From a budget to a plan that holds, seen from outside: `lowtide.plan` and `lowtide.fits`."""

from __future__ import annotations

import copy
import functools
import gc
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import lowtide
from benchmarks.cgroups import hindrance, kills, memory_group
from lowtide.data import Store
from lowtide.errors import LowtideError
from lowtide.memory import held, watch
from lowtide.memory.sizes import in_words
from lowtide.nn.losses import mae, mse
from lowtide.planning import DoesNotFitError, Plan, maker
from lowtide.planning.search import row_counts
from lowtide.planning.workload import read_workload
from tests.data.loading_cases import told
from tests.planning.cases import CLASSES, INPUTS, MIB, Tagger, sample

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("unguarded.py")
LENGTHS = np.random.default_rng(0).integers(10, 120, 200)
KILLED = -9


def script(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-" if stdin else str(SCRIPT), *arguments],
        input=stdin,
        cwd=ROOT,
        env=os.environ | {"LOWTIDE_CACHE": "off"},
        capture_output=True,
        text=True,
        check=False,
    )


def figures(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, f"exit {ran.returncode}: {ran.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def growth_of(train: Callable[[], None]) -> int:
    """What training adds at most to what this process holds now; once it has run, since loading code blurs marks."""
    gc.collect()
    before = held()
    train()
    with watch() as peak:
        train()
    return peak.bytes - before


def assert_kept(told: dict[str, Any]) -> None:
    """See that a plan was a promise: for training, and for planning itself."""
    assert told["measured"] <= told["planned"] <= told["budget"], told
    assert told["planned"] <= 1.1 * told["measured"], told
    assert told["planning"] <= told["budget"], told
    assert np.isfinite(told["loss"])


def test_a_plan_holds_in_a_memory_cgroup_whose_limit_is_the_budget() -> None:
    reason = hindrance()
    if reason is not None:
        pytest.skip(reason)
    with memory_group() as group:
        ran = script("2500", str(group))
        killed = kills(group)
    assert ran.returncode != KILLED, "killed"
    assert_kept(figures(ran))
    assert killed == 0


@pytest.mark.parametrize("how", ["a script without a guard", "standard input, as in a notebook"])
def test_models_lambdas_and_losses_of_a_users_script_are_planned(how: str) -> None:
    stdin = None if how == "a script without a guard" else SCRIPT.read_text(encoding="utf-8")
    assert_kept(figures(script("150", stdin=stdin)))


# One small model, planned once; what the tests below ask for is seen on it.


def make() -> tuple[Tagger, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Tagger("GRU")
    return model, torch.optim.Adam(model.parameters())


def arguments(optimizer: torch.optim.Optimizer, **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - of plan
    given: dict[str, Any] = {"optimizer": optimizer, "sample": sample(), "lengths": LENGTHS, "batch_size": 16}
    return given | {"budget": room()} | changed


@functools.cache
def room() -> int:
    """The budget of all tests on the small model: found when the first asks, since other tests' memory stays here."""
    return held() + 700 * MIB


CACHE = "LOWTIDE_CACHE"


@pytest.fixture(scope="module")
def kept_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def planned(kept_in: Path) -> Plan:
    """Planned once, with a look at what it leaves behind here."""
    model, optimizer = make()
    random.seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(kept_in))
        before = copy.deepcopy(model.state_dict())
        children = psutil.Process().children()
        asked = arguments(optimizer)
        state = torch.get_rng_state(), random.getstate()
        with watch() as peak:
            plan = lowtide.plan(model, mse, **asked)
        assert torch.equal(torch.get_rng_state(), state[0])
        assert random.getstate() == state[1]
        assert psutil.Process().children() == children
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not optimizer.state
    assert all(one.grad is None for one in model.parameters())
    assert peak.bytes <= room()
    return plan


class AskedError(Exception):
    """A child was asked for."""


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch, kept_in: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AskedError

    monkeypatch.setattr(maker, "Prober", refuse)
    monkeypatch.setenv(CACHE, str(kept_in))


def test_the_plan_covers_every_batch_and_tells_how_it_was_found(planned: Plan) -> None:
    assert held() / 2 < planned.base_bytes < planned.peak_bytes <= planned.budget == room()
    assert planned.batch_size == 16
    workload = read_workload(make()[0], sample=sample(), lengths=LENGTHS, batch_size=16)
    steps = [choice.steps for choice in planned.choices]
    assert steps == sorted(set(steps))
    assert steps[-1] == LENGTHS.max()
    assert sum(bucket.batches for bucket in planned.buckets) == pytest.approx(workload.batches, rel=1e-3)
    for bucket in planned.buckets:
        assert bucket.choice.rows in row_counts(bucket.batch_rows)
        assert planned.base_bytes + bucket.bytes <= planned.peak_bytes
    assert sum(one.bytes for one in planned.components) == pytest.approx(planned.peak_bytes, rel=0.01)
    assert planned.seconds_per_epoch > 0
    assert planned.planning_seconds > 0
    assert "Proved by running its worst batch" in planned.sure
    assert in_words(planned.peak_bytes) in str(planned)


def test_training_by_it_stays_below_it(planned: Plan) -> None:
    model, optimizer = make()
    step = lowtide.PlannedStep(model, mse, planned)

    def train() -> None:
        for steps in (int(LENGTHS.max()), 20, int(LENGTHS.max())):
            step(sample(16, steps))
            optimizer.step()
            optimizer.zero_grad()

    assert growth_of(train) <= planned.growth


@pytest.mark.usefixtures("no_child")
def test_a_second_call_answers_without_a_child(planned: Plan) -> None:
    model, optimizer = make()
    again = lowtide.plan(model, mse, **arguments(optimizer))
    assert again.buckets == planned.buckets
    assert again.fingerprint == planned.fingerprint
    assert again.peak_bytes <= again.budget


def changed(name: str) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Model, loss and arguments of a call that differs in one thing from what was planned."""
    model, optimizer = make()
    if name == "model":
        model = Tagger("GRU", hidden=17)
        optimizer = torch.optim.Adam(model.parameters())
    if name == "optimizer":
        optimizer = torch.optim.SGD(model.parameters())
    asked = arguments(optimizer)
    if name == "budget":
        asked["budget"] += 1
    if name == "lengths":
        asked["lengths"] = LENGTHS + 1
    if name == "batch size":
        asked["batch_size"] = 17
    if name == "precision":
        asked["precision"] = "bfloat16"
    if name == "sample":
        asked["sample"] = sample(lengths=False)
    loss_fn = mae if name == "loss" else mse
    return model, loss_fn, asked


@pytest.mark.usefixtures("no_child", "planned")
@pytest.mark.parametrize(
    "name", ["model", "optimizer", "budget", "lengths", "batch size", "precision", "sample", "loss"]
)
def test_whatever_is_different_is_planned_anew(name: str) -> None:
    model, loss_fn, asked = changed(name)
    with pytest.raises(AskedError):
        lowtide.plan(model, loss_fn, **asked)


@pytest.mark.usefixtures("no_child", "planned")
def test_threads_a_cache_elsewhere_and_none_at_all_are_planned_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, loss_fn, asked = changed("nothing")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(AskedError):
            lowtide.plan(model, loss_fn, **asked)
    finally:
        torch.set_num_threads(threads)
    for setting in ("off", str(tmp_path / "elsewhere")):
        monkeypatch.setenv(CACHE, setting)
        with pytest.raises(AskedError):
            lowtide.plan(model, loss_fn, **asked)


@pytest.mark.usefixtures("planned", "no_child")
def test_a_damaged_plan_in_the_cache_is_planned_anew(kept_in: Path) -> None:
    for place in kept_in.rglob("*.json"):
        intact = place.read_bytes()
        try:
            place.write_bytes(intact[: len(intact) // 2])
            model, loss_fn, asked = changed("nothing")
            with pytest.raises(AskedError):
                lowtide.plan(model, loss_fn, **asked)
        finally:
            place.write_bytes(intact)


def test_below_the_floor_it_says_the_floor_and_at_the_floor_it_works() -> None:
    model, optimizer = make()
    gc.collect()
    asked = arguments(optimizer, budget=held() + 40 * MIB)
    with pytest.raises(DoesNotFitError) as refused:
        lowtide.plan(model, mse, **asked)
    error = refused.value
    assert error.floor > asked["budget"]
    assert sum(one.bytes for one in error.components) == pytest.approx(error.floor, rel=0.02)
    assert in_words(error.floor) in str(error)
    answer = lowtide.fits(model, mse, **asked)
    assert not answer
    assert in_words(asked["budget"]) in str(answer)
    asked["budget"] = error.floor
    plan = lowtide.plan(model, mse, **asked)
    assert plan.peak_bytes <= plan.budget == error.floor
    yes = lowtide.fits(model, mse, **asked)
    assert yes
    assert yes.floor <= plan.peak_bytes + 8 * MIB


def test_what_cannot_be_pickled_asks_for_a_factory_and_one_works() -> None:
    model, optimizer = make()
    lock = threading.Lock()

    def loss_fn(out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with lock:
            return mse(out, wanted)

    with pytest.raises(LowtideError, match="factory="):
        lowtide.plan(model, loss_fn, **arguments(optimizer))

    def factory() -> tuple[nn.Module, Any, torch.optim.Optimizer]:
        from tests.planning.cases import Tagger  # noqa: PLC0415 - made where it runs

        made = Tagger("GRU")
        return made, mse, torch.optim.Adam(made.parameters())

    plan = lowtide.plan(model, loss_fn, **arguments(optimizer), factory=factory)
    assert plan.peak_bytes <= plan.budget
    assert torch.isfinite(lowtide.PlannedStep(model, loss_fn, plan)(sample(16, 60)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return told(LENGTHS.tolist(), tmp_path_factory.mktemp("store") / "store")


class Shop(nn.Module):
    """Classes of each step, by its numbers and what is static."""

    def __init__(self) -> None:
        """Stock layers."""
        super().__init__()
        self.rnn = nn.LSTM(2, 16, batch_first=True)
        self.head = nn.Linear(17, 7)

    def forward(self, x: torch.Tensor, static: torch.Tensor) -> torch.Tensor:
        """Classes."""
        values = self.rnn(x)[0]
        shops = static[:, None].expand(-1, values.shape[1], -1)
        classes: torch.Tensor = self.head(torch.cat([values, shops.to(values.dtype)], -1))
        return classes


def test_stock_layers_on_a_store_with_static_values_are_planned_and_trained(store: Store) -> None:
    model = Shop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = lowtide.nn.losses.cross_entropy
    plan = lowtide.plan(model, loss_fn, optimizer=optimizer, data=store, batch_size=16, budget=room())
    assert plan.choices[-1].steps == LENGTHS.max()
    assert plan.prefetch_bytes is not None
    loader = store.loader(batch_size=16, prefetch_bytes=plan.prefetch_bytes)
    step = lowtide.PlannedStep(model, loss_fn, plan)

    def train() -> None:
        for batch in loader:
            assert torch.isfinite(step(batch))
            optimizer.step()
            optimizer.zero_grad()

    assert growth_of(train) <= plan.growth


def test_data_of_a_fixed_size_without_recurrent_layers_in_bfloat16() -> None:
    model = nn.Sequential(nn.Linear(300, 2000), nn.ReLU(), nn.Linear(2000, CLASSES))
    optimizer = torch.optim.Adam(model.parameters())
    batch = (torch.randn(64, 300), torch.randint(CLASSES, (64,)))
    loss_fn = nn.CrossEntropyLoss()
    plan = lowtide.plan(
        model, loss_fn, optimizer=optimizer, sample=batch, batch_size=4096, budget=room(), precision="bfloat16"
    )
    (choice,) = plan.choices
    assert choice.steps == 300
    assert choice.chunk_steps is None
    assert plan.precision == "bfloat16"
    step = lowtide.PlannedStep(model, loss_fn, plan)

    def train() -> None:
        for _ in range(4):
            loss = step((torch.randn(4096, 300), torch.randint(CLASSES, (4096,))))
            assert torch.isfinite(loss)
            optimizer.step()
            optimizer.zero_grad()

    assert growth_of(train) <= plan.growth


def test_auto_tries_sizes_and_takes_the_fastest_that_fits() -> None:
    model, optimizer = make()
    plan = lowtide.plan(model, mse, **arguments(optimizer, lengths=LENGTHS[:130], batch_size="auto"))
    assert [one.batch_size for one in plan.sizes_tried] == [8, 16]
    assert all(one.fits for one in plan.sizes_tried)
    speeds = {one.batch_size: one.steps_per_second for one in plan.sizes_tried}
    assert speeds[plan.batch_size] >= max(speeds.values()) / 1.04
    for one in plan.sizes_tried:
        assert f"{one.steps_per_second:,.0f}" in str(plan)


@pytest.mark.parametrize("size", [0, -1, 2.5, "many", None, True])
def test_batch_sizes_that_are_none_are_refused(size: object) -> None:
    model, optimizer = make()
    for ask in (lowtide.plan, lowtide.fits):
        with pytest.raises(LowtideError, match="batch_size="):
            ask(model, mse, **arguments(optimizer, batch_size=size))


def test_a_model_that_fails_says_with_what() -> None:
    model = nn.Sequential(nn.Linear(INPUTS + 1, CLASSES))
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(LowtideError, match="cannot be multiplied"):
        lowtide.plan(model, mse, **arguments(optimizer))
