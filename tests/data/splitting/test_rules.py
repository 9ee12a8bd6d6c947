"""What is asked for as a split is a rule that contradicts nothing, and comes back from plain values."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

import lowtide
from lowtide.data.splitting.rules import ByIds, BySequence, ByTime, billionths, read_rule

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


def test_plain_requests_are_read() -> None:
    assert read_rule(SHARES) == BySequence(SHARES, seed=0)
    assert read_rule({"a": ["x"], "b": ("y", "z")}) == ByIds({"a": ["x"], "b": ["y", "z"]})
    rule = ByTime(SHARES)
    assert read_rule(rule) is rule


def test_fractions_end_at_the_whole() -> None:
    assert billionths({"a": 0.7, "b": 0.1, "c": 0.2}) == [700_000_000, 800_000_000, 1_000_000_000]
    assert billionths({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})[-1] == 1_000_000_000


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "names no parts"),
        ("train", "names no parts"),
        ({"train": 0.8, "test": 0.3}, "add up to 1.1"),
        ({"train": 1.2, "test": -0.2}, "the fraction 1.2"),
        ({"train": True}, "neither fractions nor lists"),
        ({"train": 0.5, "test": ["a"]}, "neither fractions nor lists"),
        ({"by": "moon"}, "is no rule"),
        ({"by": "sequence", "until": {}}, "is no rule"),
    ],
)
def test_requests_that_are_no_rule_are_refused(rule: Any, said: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(lowtide.LowtideError, match=said):
        read_rule(rule)


def test_contradictory_rules_are_refused() -> None:
    with pytest.raises(lowtide.LowtideError, match="one of them"):
        ByTime()
    with pytest.raises(lowtide.LowtideError, match="only the last one"):
        ByTime(until={"train": None, "test": 4})
    with pytest.raises(lowtide.LowtideError, match="listed in the parts"):
        ByIds({"train": ["a", "b"], "test": ["b"]})
    with pytest.raises(lowtide.LowtideError, match="seed"):
        BySequence(SHARES, seed=True)
    with pytest.raises(lowtide.LowtideError, match="named"):
        BySequence({f"part{number}": 1 / 128 for number in range(128)})


def test_rules_come_back_from_plain_values() -> None:
    for rule in (
        BySequence(SHARES, seed=7),
        ByTime(fractions=SHARES),
        ByTime(until={"train": "2024-01-01", "test": None}),
    ):
        assert read_rule(json.loads(json.dumps(rule.to_json()))) == rule
    dated = ByTime(until={"train": date(2024, 1, 1), "test": None})
    assert dated.to_json()["until"] == {"train": "2024-01-01", "test": None}
