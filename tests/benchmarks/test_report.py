"""A report shows what was measured, and calls reached only what was reached."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.report import Comparison, Machine, Measured, Report, Table, render_machine, render_table, to_json
from benchmarks.targets import TRIALS
from benchmarks.task import Task

MACHINE = Machine(
    processor="A processor",
    cores=2,
    threads=2,
    system="Linux",
    python="3.11.2",
    torch="2.13.0",
    lowtide="0.1.0",
    isa="avx512",
    team="openmp",
    load=0.04,
    product_gflops=251.4,
)


def compared(stock: float, lean: float, wanted: float | None) -> Comparison:
    return Comparison("LSTM B1 T2 I3 H4", "outputs", Measured((stock,)), Measured((lean,)), wanted)


def table(*rows: Comparison) -> Table:
    return Table("time", "Forward + backward", "ms", ("stock", "lean"), {"LOWTIDE_ISA": "avx2"}, rows)


def test_the_best_of_each_side_is_compared() -> None:
    row = Comparison("work", "gates", Measured((0.5, 0.3, 0.4)), Measured((0.2, 0.1)), wanted=None)
    assert row.ratio == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("stock", "lean", "wanted", "reached"),
    [
        (3.0, 2.0, 1.5, True),
        (3.0, 1.0, 1.5, True),
        (2.999, 2.0, 1.5, False),  # shown as 1.50, yet short of it
        (3.0, 2.0, None, None),
    ],
)
def test_reached_is_judged_before_rounding(
    stock: float, lean: float, wanted: float | None, reached: bool | None
) -> None:
    assert compared(stock, lean, wanted).reached is reached


def test_a_table_is_aligned_and_counts_what_was_reached() -> None:
    long = replace(compared(63.6, 0.66, 80), work="LSTM L2 packed, lengths 800-1000, B32 I128 H256")
    rendered = render_table(table(long, compared(0.1234, 0.1, 1.4), compared(0.002, 0.001, None)))
    assert rendered.splitlines() == [
        "Forward + backward",
        "LOWTIDE_ISA=avx2",
        "",
        "work                                             keep     stock ms  lean ms  ratio  wanted  reached",
        "-----------------------------------------------  -------  --------  -------  -----  ------  -------",
        "LSTM L2 packed, lengths 800-1000, B32 I128 H256  outputs     63600    660.0  96.36      80      yes",
        "LSTM B1 T2 I3 H4                                 outputs     123.4    100.0   1.23     1.4       no",
        "LSTM B1 T2 I3 H4                                 outputs       2.0      1.0   2.00       -        -",
        "",
        "reached 1 of 2",
    ]


def test_growth_is_shown_beside_seconds_where_it_was_measured() -> None:
    row = replace(
        compared(0.2, 0.1, None), baseline=Measured((0.2,), growth=434_000_000), contender=Measured((0.1,), growth=None)
    )
    headings, _, cells = render_table(table(row)).splitlines()[3:6]
    assert headings.endswith("reached  stock MB  lean MB")
    assert cells.endswith("      -       434        -")


def test_memory_is_shown_in_megabytes() -> None:
    memory = replace(table(compared(2_800_000_000.0, 500_000_000.0, 4.5)), unit="MB", sides=("stock", "lean"))
    headings, _, cells = render_table(memory).splitlines()[3:6]
    assert headings.split()[2:6] == ["stock", "MB", "lean", "MB"]
    assert cells.split()[-5:] == ["2800", "500", "5.60", "4.5", "yes"]


def test_a_table_that_asks_for_nothing_says_so() -> None:
    assert render_table(table(compared(2.0, 1.0, None))).endswith("nothing is asked of these")


def test_the_machine_is_described_with_its_kernels_and_its_matrix_product() -> None:
    rendered = render_machine(MACHINE)
    assert "torch 2.13.0 on 2 threads" in rendered
    assert "avx512 kernels" in rendered
    assert "251 GFLOP/s" in rendered


def test_json_holds_every_value_and_the_verdicts() -> None:
    written = json.loads(to_json(Report(MACHINE, (table(compared(3.0, 1.0, 2.0), compared(3.0, 1.0, None)),))))
    assert written["machine"]["isa"] == "avx512"
    (shown,) = written["tables"]
    assert shown["settings"] == {"LOWTIDE_ISA": "avx2"}
    assert [row["reached"] for row in shown["rows"]] == [True, None]
    assert shown["rows"][0]["ratio"] == pytest.approx(3.0)
    assert shown["rows"][0]["baseline"]["values"] == [3.0]


@pytest.mark.parametrize("name", TRIALS)
def test_a_task_reaches_the_child_as_it_was_given(name: str) -> None:
    for race in TRIALS[name].races:
        task = Task("seconds", race.work, (race.baseline, *race.wanted), repeats=3, slow_first=race.slow_baseline)
        assert Task.from_json(task.to_json()) == task


def test_work_is_called_by_its_sizes() -> None:
    titles = [race.work.title for race in TRIALS["time"].races]
    assert titles[0] == "LSTM B32 T500 I128 H256"
    assert titles[-3:] == [
        "RNN tanh B32 T500 I128 H256",
        "LSTM L2 packed, lengths 800-1000, B32 I128 H256",
        "GRU packed, lengths 200-400, B32 I128 H256",
    ]


def test_lengths_of_a_packed_batch_fall_from_the_longest_to_the_shortest() -> None:
    work = TRIALS["time"].races[-1].work
    assert work.lengths == sorted(work.lengths, reverse=True)
    assert (work.lengths[0], work.lengths[-1], len(work.lengths)) == (400, 200, 32)
