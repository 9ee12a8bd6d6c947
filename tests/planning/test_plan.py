"""A plan is a value: it comes back from its file equal, or not at all where it cannot be kept here."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.data.disk import files
from lowtide.errors import LowtideError
from lowtide.memory.limit import Limit
from lowtide.planning import BucketPlan, Plan
from lowtide.planning import plan as module
from lowtide.step import Choice
from tests.planning.cases import MIB, made_plan


def limited(size: int) -> Any:  # noqa: ANN401 - stands for `limit`
    return lambda _: Limit(size, "a made up limit", "resident memory", 0, ())


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "limit", limited(10_000 * MIB))


@pytest.mark.parametrize(
    "plan",
    [
        made_plan(),
        made_plan(prefetch_bytes=None, foreach=None, faster_with=None, sizes_tried=(), offers=(), circumstances={}),
        made_plan(seconds_per_epoch=1e-9, buckets=(BucketPlan(Choice(1, 1, None), 1, 0.1, 0, 0.0),)),
    ],
)
def test_it_comes_back_equal_from_its_file(plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    back = Plan.load(str(tmp_path / "plan.json"))
    assert back == plan
    assert back.planning_seconds == plan.planning_seconds
    assert back.choices == plan.choices
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - made here


def test_plans_are_compared_by_all_but_the_time_they_took() -> None:
    assert made_plan() == made_plan(planning_seconds=99.0)
    for name, value in {
        "budget": 1,
        "precision": "bfloat16",
        "fingerprint": "x",
        "offers": (),
        "circumstances": {},
    }.items():
        assert made_plan() != made_plan(**{name: value})


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        made_plan().peak_bytes = 5  # type: ignore[misc] # that is the point


def test_it_is_refused_where_the_limit_is_smaller_than_its_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made_plan()
    plan.save(tmp_path / "plan.json")
    monkeypatch.setattr(module, "limit", limited(plan.peak_bytes))
    assert Plan.load(tmp_path / "plan.json") == plan
    monkeypatch.setattr(module, "limit", limited(plan.peak_bytes - 1))
    with pytest.raises(LowtideError, match="a made up limit") as refused:
        Plan.load(tmp_path / "plan.json")
    assert "700" in refused.value.what


def test_a_plan_for_a_gpu_is_refused_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    monkeypatch.undo()
    made_plan(device="cuda:0", peak_bytes=1).save(tmp_path / "plan.json")
    with pytest.raises(LowtideError, match="cuda:0"):
        Plan.load(tmp_path / "plan.json")


def damaged() -> dict[str, str]:
    told = made_plan().to_json()
    bucket = told["buckets"][0]

    def but(**changed: Any) -> str:  # noqa: ANN401 - any JSON
        return json.dumps(told | changed)

    return {
        "empty": "",
        "cut": json.dumps(told)[:100],
        "no JSON": "plan",
        "no plan": "{}",
        "a list": "[]",
        "a list of numbers": "[1]",
        "a number": "5",
        "text": '"plan"',
        "another format": but(format=0),
        "no format": json.dumps({name: value for name, value in told.items() if name != "format"}),
        "an unknown field": but(surprise=1),
        "a missing field": json.dumps({name: value for name, value in told.items() if name != "budget"}),
        "a peak in words": but(peak_bytes="700 MiB"),
        "no peak": but(peak_bytes=None),
        "a peak below zero": but(peak_bytes=-1),
        "no buckets": but(buckets=[]),
        "buckets of another kind": but(buckets=5),
        "buckets of text": but(buckets=["a"]),
        "a choice of no rows": but(buckets=[bucket | {"choice": bucket["choice"] | {"rows": 0}}]),
        "a choice of another kind": but(buckets=[bucket | {"choice": 3}]),
        "components of numbers": but(components=[1]),
    }


@pytest.mark.parametrize("damage", damaged())
def test_what_is_no_plan_of_this_version_is_refused_with_its_path(damage: str, tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    place.write_text(damaged()[damage])
    with pytest.raises(LowtideError, match="holds no plan") as refused:
        Plan.load(place)
    assert str(place) in refused.value.what


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    for name in ("plan.json", "nowhere.json", "."):
        with pytest.raises(LowtideError, match="holds no plan"):
            Plan.load(tmp_path / name)


def test_a_write_that_fails_leaves_the_plan_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "plan.json"
    made_plan().save(place)

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(LowtideError, match="no space left"):
        made_plan(budget=1).save(place)
    assert Plan.load(place) == made_plan()
    assert list(tmp_path.iterdir()) == [place]


def test_saving_into_no_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(LowtideError, match="nowhere"):
        made_plan().save(tmp_path / "nowhere" / "plan.json")


def test_rebasing_moves_all_that_counts_what_was_held() -> None:
    plan = made_plan()
    moved = plan.rebased(plan.base_bytes + 50 * MIB)
    assert moved.growth == plan.growth
    assert moved.peak_bytes == plan.peak_bytes + 50 * MIB
    assert moved.before_proof == plan.before_proof + 50 * MIB
    assert moved.faster_with == 1050 * MIB
    assert moved.components[0].bytes == moved.base_bytes == 250 * MIB
    assert moved.components[1:] == plan.components[1:]
    assert moved.rebased(plan.base_bytes) == plan


@pytest.mark.parametrize("foreach", [None, True, False])
def test_preparing_sets_what_the_plan_says_of_the_optimizer(foreach: bool | None) -> None:
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    before = optimizer.param_groups[0]["foreach"]
    replace(made_plan(), foreach=foreach).prepare(optimizer)
    assert optimizer.param_groups[0]["foreach"] == (before if foreach is None else foreach)
