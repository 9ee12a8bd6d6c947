"""What the parts of the benchmark of planning make of what they measured, and that an interrupted run goes on."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import plan_allocator, plan_grid, plan_rivals
from benchmarks.allocator import WORKS
from benchmarks.plan_asking import failed, go_on, recall
from benchmarks.plan_case import draw_case
from benchmarks.plan_grid_child import Run, in_turns, samples_of
from benchmarks.plan_rivals_child import batches_of, case_of, valid_steps
from lowtide.step.choice import Choice

FAILED = {"killed": False, "words": "Traceback: no such thing"}
KILLED = {"killed": True, "words": ""}


def go_on_with(answers: dict[str, Any], kept: Path) -> tuple[list[str], list[Any]]:
    """What is measured, and what is shown."""
    measured: list[str] = []
    shown: list[Any] = []

    def measure(name: str) -> dict[str, Any]:
        measured.append(name)
        found: dict[str, Any] = answers[name]
        return found

    go_on(list(answers), kept, measure, shown.append)
    return measured, shown


def test_what_was_measured_is_not_measured_again_but_shown(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert go_on_with({"a": {"rate": 1.0}}, kept)[0] == ["a"]
    measured, shown = go_on_with({"a": {"rate": 3.0}, "b": {"rate": 2.0}}, kept)
    assert measured == ["b"]
    assert shown == [{"rate": 1.0}, {"rate": 2.0}]
    assert recall(kept) == {"a": {"rate": 1.0}, "b": {"rate": 2.0}}


def test_what_failed_is_measured_again_and_what_was_killed_is_not(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    go_on_with({"failed": FAILED, "killed": KILLED}, kept)
    assert go_on_with({"failed": {"rate": 1.0}, "killed": KILLED}, kept)[0] == ["failed"]


def test_what_was_measured_is_there_when_the_next_measurement_is_interrupted(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"

    def measure(name: str) -> dict[str, Any]:
        if name == "second":
            raise KeyboardInterrupt
        return {"name": name}

    with pytest.raises(KeyboardInterrupt):
        go_on(["first", "second"], kept, measure, lambda _: None)
    assert json.loads(kept.read_text()) == {"first": {"name": "first"}}


def test_only_an_end_without_an_answer_that_nobody_caused_is_a_failure() -> None:
    assert failed(FAILED)
    assert not failed(KILLED)
    assert not failed({"rate": 1.0})


def test_the_same_cases_have_their_grids_timed_every_time_and_none_takes_long() -> None:
    numbers = list(islice(plan_grid.moderate_numbers(draw_case), 3))
    assert numbers == sorted(set(numbers))
    assert numbers == list(islice(plan_grid.moderate_numbers(draw_case), 3))
    for number in range(numbers[-1] + 1):
        assert plan_grid.is_moderate(draw_case(number)) is (number in numbers)


def grid(number: int, *, plan: float, best: float, peak: int = 90) -> dict[str, Any]:
    """A grid of two batches: of the first an epoch has three like it, of the second one."""
    samples = [
        {
            "rows": 4,
            "steps": 8,
            "run": 5,
            "fitting": 4,
            "stands_for": stands_for,
            "plan": {"how": "4 rows whole", "seconds": plan_seconds, "peak": peak},
            "best": {"how": "2 rows whole", "seconds": best_seconds, "peak": 80},
        }
        for stands_for, plan_seconds, best_seconds in ((3.0, plan, best), (1.0, 1.0, 1.0))
    ]
    return {
        "number": number,
        "case": "a case",
        "budget": 100,
        "planned_seconds": 2.0,
        "samples": samples,
        "seconds": 60.0,
    }


def test_an_epoch_counts_each_batch_as_often_as_there_are_like_it() -> None:
    found = grid(7, plan=2.0, best=1.0)
    assert plan_grid.epoch(found, "plan") == pytest.approx(7.0)
    assert plan_grid.epoch(found, "best") == pytest.approx(4.0)
    assert plan_grid.ratio(found) == pytest.approx(7 / 4)


@pytest.mark.parametrize(("plan", "reached"), [(1.1, True), (1.5, False)])
def test_a_plan_may_take_a_tenth_more_than_the_best(plan: float, reached: bool) -> None:
    ratios = [one for one in plan_grid.judge([grid(7, plan=plan, best=1.0)]) if "best" in one.question]
    assert [one.reached for one in ratios] == [reached]


def test_a_grid_that_failed_and_a_plan_above_its_budget_are_counted() -> None:
    lost = {"number": 3, "killed": False, "words": "Traceback"}
    figures = {one.question: one for one in plan_grid.judge([grid(7, plan=1.0, best=1.0, peak=101), lost])}
    assert figures["grids that failed"].value == 1
    assert figures["grids that failed"].detail == "[3]"
    assert figures["plans whose peak was above the budget"].detail == "[7]"
    assert plan_grid.told(lost) == "3: FAILED Traceback"
    assert plan_grid.told(grid(7, plan=1.0, best=1.0)).startswith("7: 1.000 in 60 s: a case; 4 x 8: 4 rows whole")


def test_sampled_batches_stand_for_all_the_work_of_an_epoch() -> None:
    sizes = [(4, 100), (4, 10), (4, 30), (4, 20), (4, 40), (2, 5)]
    samples = samples_of(sizes)
    assert {(one.rows, one.steps) for one in samples} <= set(sizes)
    assert [one.steps for one in samples] == [30, 40, 100]
    work = [one.stands_for * one.rows * one.steps for one in samples]
    assert work == pytest.approx([810 / 3] * 3)


def test_an_epoch_of_equal_batches_is_one_batch_so_many_times() -> None:
    (sample,) = samples_of([(8, 50)] * 6)
    assert (sample.rows, sample.steps) == (8, 50)
    assert sample.stands_for == pytest.approx(6)


def test_finalists_are_timed_in_turns_and_what_was_timed_before_does_not_count() -> None:
    few, many = Choice(8, 1, None), Choice(8, 4, None)
    called: list[Choice] = []

    def run(choice: Choice) -> Run:
        called.append(choice)
        return Run(choice, seconds=5.0 - called.count(choice) / 10, peak=100)

    found = in_turns([Run(few, 0.1, 90), Run(many, 0.2, 110)], run)
    assert called[:4] == [few, many, few, many]
    assert [one.seconds for one in found] == [5.0 - called.count(one.choice) / 10 for one in found]
    assert [one.peak for one in found] == [100, 110]


@pytest.mark.parametrize("contest", plan_rivals.CONTESTS, ids=lambda one: one.name)
def test_rivals_train_on_the_same_sequences_whatever_their_batch_size(contest: plan_rivals.Contest) -> None:
    case = case_of(contest.case, lean=False)
    assert case.batch_size * 4 == sum(rows for rows, _ in batches_of(case, case.batch_size))
    for size in (1, 7, case.batch_size):
        batches = batches_of(case, size)
        assert batches == batches_of(case, size)
        assert sum(rows for rows, _ in batches) == 4 * case.batch_size
        assert max(rows for rows, _ in batches) == size
        assert max(steps for _, steps in batches) == case.sequence_lengths().max()


def test_padding_is_no_valid_step() -> None:
    batch = {"inputs": torch.zeros(2, 5, 3)}
    assert valid_steps(batch) == 10
    assert valid_steps({**batch, "lengths": torch.tensor([5, 2])}) == 7


def trained(rate: float) -> dict[str, Any]:
    return {"rate": rate, "batch_size": 32, "ready_seconds": 1.5, "peak": 400_000_000}


def outcomes(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What came of the contestants of a contest."""
    return {
        "plan": plan,
        "stock": KILLED,
        "accelerate": {"error": "No executable batch size found, reached zero."},
        "lightning": trained(50.0),
    }


def test_a_contestant_was_fast_or_killed_or_gave_up() -> None:
    assert plan_rivals.outcome(trained(1234.5)).startswith("1,234 valid steps/s at batches of 32, ready after 1.5 s")
    assert plan_rivals.outcome(KILLED) == "killed"
    assert plan_rivals.outcome(FAILED).startswith("FAILED: Traceback")
    assert plan_rivals.outcome(outcomes(KILLED)["accelerate"]).startswith("error: No executable batch size")


def test_contests_count_who_did_not_train_and_ask_for_the_plan_alone() -> None:
    contests = [contest.name for contest in plan_rivals.CONTESTS]
    figures = plan_rivals.judge(
        {
            contests[0]: outcomes(trained(100.0)),
            contests[1]: outcomes(KILLED),
            contests[2]: {name: trained(10.0) for name in plan_rivals.CONTESTANTS},
        }
    )
    lost = {one.question: one for one in figures if "did not train" in one.question}
    assert [one.value for one in lost.values()] == [1, 2, 2, 0]
    assert lost["the plan: did not train"].detail == contests[1]
    assert [one.reached for one in lost.values()] == [False, None, None, None]
    beside = [one.value for one in figures if "fastest of the others" in one.question]
    assert beside == [2.0, 1.0]


def test_the_allocator_is_judged_work_by_work() -> None:
    titles = [work.title for work in WORKS]
    assert titles == ["LSTM L2 B32 T500 I128 H256", "GRU B64 T500 I64 H512"]
    found = {
        "title": titles[0],
        "samples": {
            "malloc as it is": {"seconds": [2.0, 2.2], "growth": [500_000_000, 600_000_000]},
            "settled": {"seconds": [1.0, 1.1], "growth": [400_000_000, 400_000_000]},
        },
    }
    figures = {one.question: one for one in plan_allocator.judge(found)}
    assert figures[f"{titles[0]}: settled / as it is: best step"].value == pytest.approx(0.5)
    assert figures[f"{titles[0]}: malloc as it is: spread of the peak"].value == pytest.approx(20.0)
    assert figures[f"{titles[0]}: settled: spread of the peak"].reached
    assert plan_allocator.told(found).startswith(f"{titles[0]}: malloc as it is: 2.00 2.20 s, 500 600 MB; settled:")
