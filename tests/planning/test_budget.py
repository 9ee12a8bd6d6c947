"""A budget is read as it is said, and only what there is can be had."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.errors import LowtideError
from lowtide.memory.limit import Limit
from lowtide.memory.sizes import in_words
from lowtide.planning import budget as module
from lowtide.planning.budget import bytes_of, read_budget

CPU = torch.device("cpu")
HERE = Limit(1000 << 20, "a made up limit", "resident memory", 100 << 20, ())


@pytest.fixture
def a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "limit", lambda _: HERE)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2GiB", 2 << 30),
        ("2 gib", 2 << 30),
        (" 1.5 GB ", 1_500_000_000),
        ("0.1 kB", 100),
        ("900 MB", 900_000_000),
        ("3MiB", 3 << 20),
        ("1TiB", 1 << 40),
        ("4096", 4096),
        ("4096 B", 4096),
        (123, 123),
    ],
)
def test_words_and_numbers_mean_bytes(said: str | int, expected: int) -> None:
    assert bytes_of(said) == expected


@given(st.integers(1, 1 << 60))
def test_every_number_means_itself_in_words_as_well(number: int) -> None:
    assert bytes_of(number) == bytes_of(str(number)) == number


@pytest.mark.parametrize(
    "said", ["", "GiB", "2 gigs", "-3 GB", "0", "0.2 B", 0, -5, 1.5, True, None, "2GiB3", "1e9", "nan", [1], "9" * 400]
)
def test_what_means_nothing_is_refused_with_what_was_said(said: object) -> None:
    with pytest.raises(LowtideError) as refused:
        bytes_of(said)  # type: ignore[arg-type] # that is the point
    assert f"budget={said!r}" in str(refused.value)


@pytest.mark.usefixtures("a_limit")
def test_more_than_there_is_is_refused_even_where_it_is_very_much() -> None:
    for said in ("1100 MiB", "9" * 20 + " TiB", 1 << 80):
        with pytest.raises(LowtideError, match="a made up limit") as refused:
            read_budget(said, CPU)
        assert in_words(HERE.bytes) in refused.value.what


@pytest.mark.usefixtures("a_limit")
def test_what_is_asked_is_given_and_a_rounded_limit_is_the_limit() -> None:
    asked = read_budget("500 MiB", CPU)
    assert (asked.bytes, asked.held, asked.left) == (500 << 20, HERE.held, 400 << 20)
    assert asked.source == "as asked"
    rounded = read_budget(HERE.bytes + (1 << 20), CPU)
    assert rounded.bytes == HERE.bytes


@pytest.mark.usefixtures("a_limit")
def test_without_a_budget_a_little_of_the_limit_is_left_alone_and_its_source_is_told() -> None:
    found = read_budget(None, CPU)
    assert 0.9 * HERE.bytes < found.bytes < HERE.bytes
    assert HERE.source in found.source


@pytest.mark.skipif(sys.platform != "linux", reason="what is held is exact on Linux")
def test_here_the_budget_is_what_the_machine_allows() -> None:
    found = read_budget(None, CPU)
    assert 0 < found.held < found.bytes <= lowtide.memory.limit().bytes * 1.02
